"""Settings of a model: names, defaults and meanings in one table, checked once; the ground every room stands on."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, asdict, dataclass, field, fields
from typing import Any

from .options import one_of, positive_number, seed, truth, whole_number

SIDES = ("users", "items")
POPULARITY = 0.35  # exponent of the ranking; docs/study.md has the evidence for this and for the defaults below


def other(side: str) -> str:
    """The side that a side is paired with.

    >>> other("users")
    'items'
    """
    return "items" if side == "users" else "users"


def _setting(default: Any, meaning: str, *choices: str) -> Any:
    """A field with its default and its meaning in a sentence; `choices` are the words that it may be."""
    return field(default=default, metadata={"meaning": meaning, "choices": choices})


@dataclass(eq=False, repr=False)
class GivenSettings:
    """What decides the numbers of a fit, together with the counts, as people give it: unchecked, may be changed.

    The one table of settings: `PairedSymbols` takes and shows them, `pairsym fit` has an option for each.
    """

    factors: int = _setting(20, "K, traits a symbol.")
    censored_ratio: float = _setting(5.0, "r in D' = r D, censored pairs for each pair shown.")
    tau_u: float = _setting(0.1, "Prior precision of user traits.")
    tau_v: float = _setting(0.1, "Prior precision of item traits.")
    tau_b: float = _setting(0.1, "Prior precision of biases.")
    alpha: float = _setting(1.0, "Dirichlet prior of both popularities.")
    biases: bool = _setting(True, "Whether symbols have a bias beside their traits.")
    selection: str = _setting(
        "constant", "Messages of who is censored: full ones, or the paper's practical variant.", "bayes", "constant"
    )
    dtype: str = _setting("float32", "Numbers of the posterior.", "float32", "float64")
    random_state: int = _setting(0, "Seed of the start.")


@dataclass(unsafe_hash=True)
class Settings(GivenSettings):
    """The same, checked; they cannot be changed any more."""

    # A frozen dataclass cannot inherit fields from one that is not: so it is frozen by hand.

    def __post_init__(self) -> None:
        checked: dict[str, Any] = {
            "factors": whole_number("factors", self.factors, least=1),
            "random_state": seed(self.random_state),
            "biases": truth("biases", self.biases),
            "dtype": getattr(self.dtype, "__name__", None) or str(self.dtype),
        }
        for name in ("censored_ratio", "tau_u", "tau_v", "tau_b", "alpha"):
            checked[name] = positive_number(name, getattr(self, name))
        self.__dict__.update(checked)
        for setting in fields(self):
            if setting.metadata["choices"]:
                one_of(setting.name, getattr(self, setting.name), setting.metadata["choices"])

    def __setattr__(self, name: str, value: Any) -> None:
        if name in self.__dict__:
            raise FrozenInstanceError(f"settings are fixed once they are checked: {name} cannot become {value!r}")
        super().__setattr__(name, value)

    def tau(self, side: str) -> float:
        return self.tau_u if side == "users" else self.tau_v

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def describe_settings() -> str:
    """The table of settings in the form of a docstring's parameters."""
    lines = []
    for setting in fields(GivenSettings):
        choices = setting.metadata["choices"]
        kind = "{" + ", ".join(map(repr, choices)) + "}" if choices else setting.type
        lines += [f"    {setting.name} : {kind}, default {setting.default!r}", f"        {setting.metadata['meaning']}"]
    return "\n".join(lines)
