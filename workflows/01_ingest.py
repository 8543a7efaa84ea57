"""Step 1: files of pairs (Parquet, CSV, TSV, also .gz) into a counts store.

python workflows/01_ingest.py plays.csv plays.zarr --count plays
"""

from place import options, place, run

import pairsym_dask as ps


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("paths", nargs="+", help="files, folders or patterns; local or such as s3://bucket/*.parquet")
    parser.add_argument("store", help="the counts store to write")
    parser.add_argument("--user", default="user", help="column of the first symbol")
    parser.add_argument("--item", default="item", help="column of the second symbol")
    parser.add_argument("--count", help="column of counts (without: every row is one pair)")
    parser.add_argument("--memory", metavar="SIZE", help="budget of a process, such as 2GiB")
    a = parser.parse_args()
    with place(a):
        counts = ps.ingest(
            a.paths, a.store, a.user, a.item, a.count, memory=a.memory, threads=a.threads, progress=True
        )  # fmt: skip
    print(counts)


if __name__ == "__main__":
    run(main)
