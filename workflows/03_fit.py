"""Step 3: fit the model. The same line again goes on where an interrupted fit stopped.

python workflows/03_fit.py train.zarr model.zarr --factors 20 --sweeps 20 --memory 2GiB
"""

from place import options, place, run

import pairsym_dask as ps


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("counts", help="the counts store to fit to")
    parser.add_argument("model", help="the model store to write, or to go on with")
    parser.add_argument("--sweeps", type=int, default=20, help="sweeps in total")
    parser.add_argument("--tol", type=float, help="stop when the bound's relative change is within this")
    parser.add_argument("--memory", metavar="SIZE", help="budget of a process, such as 2GiB")
    defaults = ps.PairedSymbols()
    for name in ("factors", "random_state"):
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, default=getattr(defaults, name))
    for name in ("censored_ratio", "tau_u", "tau_v", "tau_b", "alpha"):
        parser.add_argument(f"--{name.replace('_', '-')}", type=float, default=getattr(defaults, name))
    parser.add_argument("--no-biases", dest="biases", action="store_false", help="for pairs of one kind of symbols")
    parser.add_argument("--selection", choices=("bayes", "constant", "counts"), default=defaults.selection)
    parser.add_argument("--dtype", choices=("float32", "float64"), default=defaults.dtype)
    a = parser.parse_args()
    model = ps.PairedSymbols(**{name: getattr(a, name) for name in defaults.get_params() if hasattr(a, name)})
    with place(a):
        model.fit(a.counts, a.model, sweeps=a.sweeps, tol=a.tol, memory=a.memory, threads=a.threads)
    print(model.history.to_string(index=False))


if __name__ == "__main__":
    run(main)
