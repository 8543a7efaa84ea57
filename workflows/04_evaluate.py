"""Step 4: rank held-out pairs: the paper's R by activity of the user, HR, NDCG, MRR, log-likelihood.

python workflows/04_evaluate.py model.zarr held_out.parquet
"""

import pandas as pd
from place import options, place, run

import pairsym_dask as ps
from pairsym_dask.baselines import Popularity
from pairsym_dask.settings import POPULARITY


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("models", nargs="+", help="model stores; popularity is compared with them")
    parser.add_argument("held_out", help="the table of step 2")
    parser.add_argument("--popularity", type=float, default=POPULARITY, help="0 taste alone, 1 the paper's ranking")
    parser.add_argument("-n", type=int, default=10, help="length of the lists for HR and NDCG")
    parser.add_argument("--memory", metavar="SIZE", help="budget of a process, such as 2GiB")
    a = parser.parse_args()
    models = {path: ps.load(path) for path in a.models}
    baseline = Popularity().fit(next(iter(models.values())).counts)
    with place(a):
        comparison = ps.compare(
            {**models, "popularity": baseline}, pd.read_parquet(a.held_out), popularity=a.popularity, n=a.n,
            threads=a.threads, memory=a.memory,
        )  # fmt: skip
    print(comparison)


if __name__ == "__main__":
    run(main)
