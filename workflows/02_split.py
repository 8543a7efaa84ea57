"""Step 2: hold pairs out; a training store, and a table of held-out pairs.

python workflows/02_split.py plays.zarr train.zarr held_out.parquet
"""

from place import options, place, run

import pairsym_dask as ps


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("counts", help="the counts store of step 1")
    parser.add_argument("train", help="the counts store to write")
    parser.add_argument("held_out", help="the table to write (.parquet), columns user and item")
    parser.add_argument("--fraction", type=float, help="share of the pairs to hold out (without: one of each user)")
    parser.add_argument("--random-state", type=int, default=0, help="seed")
    parser.add_argument("--memory", metavar="SIZE", help="budget of a process, such as 2GiB")
    a = parser.parse_args()
    common = {"random_state": a.random_state, "memory": a.memory, "threads": a.threads}
    with place(a):
        if a.fraction is None:
            train, held_out = ps.leave_one_out(a.counts, a.train, **common)
        else:
            train, held_out = ps.split_by_fraction(a.counts, a.train, a.fraction, **common)
    held_out.to_parquet(a.held_out, index=False)
    print(f"{train}\n{len(held_out):,} held-out pairs in {a.held_out}")


if __name__ == "__main__":
    run(main)
