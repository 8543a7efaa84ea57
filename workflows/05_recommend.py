"""Step 5: the best items of every user, as a folder of Parquet files.

python workflows/05_recommend.py model.zarr top.parquet -n 10
"""

from place import options, place, run

import pairsym_dask as ps
from pairsym_dask.settings import POPULARITY


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("model", help="the model store of step 3")
    parser.add_argument("output", help="the folder to write: user, item, rank, sigma, sd")
    parser.add_argument("-n", type=int, default=10, help="items a user")
    parser.add_argument("--popularity", type=float, default=POPULARITY, help="0 taste alone, 1 the paper's ranking")
    parser.add_argument("--include-seen", action="store_true", help="also items that the user has already")
    a = parser.parse_args()
    model = ps.load(a.model)
    with place(a):
        rows = model.recommend_all(
            a.output, a.n, not a.include_seen, a.popularity, threads=a.threads, progress=True
        )  # fmt: skip
    print(f"{rows:,} rows in {a.output}")


if __name__ == "__main__":
    run(main)
