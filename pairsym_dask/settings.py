"""Settings of a model: names, defaults and meanings in one table, checked once; the ground every room stands on."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, asdict, dataclass, field, fields
from typing import Any

from .errors import InputError
from .options import fraction, one_of, positive_number, seed, truth, whole_number

SIDES = ("users", "items")
# Levers of the variational fit, switched off: the model itself, which is what draws are from.
_OFF = {
    "prior_growth": 0.0,
    "background_users": 1.0,
    "background_items": 1.0,
    "temperature": 1.0,
    "discount": 0.0,
}
# What is not given: for the best lists, and for the model at its word where selection follows it or draws are taken.
_LISTS: dict[str, Any] = {
    "factors": 128,
    "censored_ratio": 20.0,
    "tau_u": 1.0,
    "tau_v": 1.0,
    "selection": "counts",
    "prior_growth": 1.0,
    "background_users": 0.4,
    "background_items": 0.4,
    "temperature": 0.0,
    "discount": 0.2,
}
_MODEL: dict[str, Any] = {
    "factors": 20, "censored_ratio": 5.0, "tau_u": 0.1, "tau_v": 0.1, "selection": "constant", **_OFF,
}  # fmt: skip
_BY_COUNTS = ("prior_growth", "background_users", "background_items")  # levers that need selection="counts"
# What stores that do not know of a setting were fitted with.
_BEFORE = {**_OFF, "inference": "variational", "hyperpriors": True, "components": 1}
POPULARITY_OF_DRAWS = 1.0  # the model's own p(j | i) ranks best where the posterior is exact
POPULARITY = 0.35  # exponent of the ranking; docs/study.md has the evidence for this and for the defaults below


# Settings that go together, by what they are for; docs/settings.md has the evidence.
PRESETS: dict[str, dict[str, Any]] = {
    "paper": {"censored_ratio": 1.0, "tau_u": 1.0, "tau_v": 1.0, "tau_b": 1.0, "selection": "bayes"},
}


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

    The one table of settings: `PairedSymbols` takes and shows them, `pairsym fit` has an option for each. One that is
    None is not given: `Settings` finds its value by what the fit is for.
    """

    factors: int = _setting(None, "K, traits a symbol.")
    censored_ratio: float = _setting(None, "r in D' = r D, censored pairs for each pair shown.")
    tau_u: float = _setting(None, "Prior precision of user traits.")
    tau_v: float = _setting(None, "Prior precision of item traits.")
    tau_b: float = _setting(0.1, "Prior precision of biases.")
    alpha: float = _setting(1.0, "Dirichlet prior of both popularities.")
    biases: bool = _setting(True, "Whether symbols have a bias beside their traits.")
    selection: str = _setting(
        None,
        "Who is censored: by full messages, by constant ones (the paper's practical variant), or by counts alone.",
        "bayes",
        "constant",
        "counts",
    )
    prior_growth: float = _setting(
        None, "nu, 0 to 1: prior precisions tau (n_i / 100)^nu grow with a symbol's pairs n_i = c_i + D' s_i."
    )
    background_users: float = _setting(
        None, "beta of the users, 0 to 1: they are censored in proportion to (alpha + c_i)^beta."
    )
    background_items: float = _setting(
        None, "beta of the items, 0 to 1: they are censored in proportion to (alpha + c_j)^beta."
    )
    temperature: float = _setting(
        None, "T, 0 to 1: posterior variances count T times in the updates; 1 is the posterior, below it a cold one."
    )
    discount: float = _setting(
        None, "w, 0 to 1: pairs count c_ij (c_i c_j)^-w, scaled to the same sum, so that active symbols weigh less."
    )
    dtype: str = _setting("float32", "Numbers of the posterior.", "float32", "float64")
    random_state: int = _setting(0, "Seed of the start and of draws.")
    inference: str = _setting(
        "variational",
        "How the posterior is found: a factorised approximation of it, or draws from it.",
        "variational",
        "gibbs",
    )
    hyperpriors: bool = _setting(
        True, "Whether draws include the priors of traits and biases; otherwise those stay at the taus."
    )
    components: int = _setting(
        1, "N of draws: a pair is selected with odds sum_n rho_n pi_in psi_jn, a mixture; 1 is the model itself."
    )


@dataclass(unsafe_hash=True)
class Settings(GivenSettings):
    """The same, checked; they cannot be changed any more."""

    # A frozen dataclass cannot inherit fields from one that is not: so it is frozen by hand.

    def __post_init__(self) -> None:
        for name, value in self._family().items():
            if getattr(self, name) is None:
                self.__dict__[name] = value
        checked: dict[str, Any] = {
            "factors": whole_number("factors", self.factors, least=1),
            "components": whole_number("components", self.components, least=1),
            "random_state": seed(self.random_state),
            "biases": truth("biases", self.biases),
            "hyperpriors": truth("hyperpriors", self.hyperpriors),
            "dtype": getattr(self.dtype, "__name__", None) or str(self.dtype),
        }
        for name in ("censored_ratio", "tau_u", "tau_v", "tau_b", "alpha"):
            checked[name] = positive_number(name, getattr(self, name))
        for name in _OFF:
            checked[name] = fraction(name, getattr(self, name), ends=True)
        self.__dict__.update(checked)
        for setting in fields(self):
            if setting.metadata["choices"]:
                one_of(setting.name, getattr(self, setting.name), setting.metadata["choices"])
        if self.selection != "counts":
            for name in _BY_COUNTS:
                if getattr(self, name) != _OFF[name]:
                    raise InputError(
                        f"{name}={getattr(self, name)!r} needs selection='counts'; "
                        f"with selection={self.selection!r} it must be {_OFF[name]!r}"
                    )
        if self.inference != "gibbs" and self.components > 1:
            raise InputError(
                f"components={self.components} needs inference='gibbs': a variational fit selects by one component"
            )
        if self.inference == "gibbs":
            for name, off in _OFF.items():
                if getattr(self, name) != off:
                    raise InputError(
                        f"{name}={getattr(self, name)!r} is a lever of the variational fit; with inference='gibbs', "
                        f"which draws from the model itself, leave it out or give {off!r}"
                    )

    def _family(self) -> dict[str, Any]:
        """What settings are that are not given: those for lists unless the model is to be taken at its word."""
        return _LISTS if self.inference != "gibbs" and self.selection in (None, "counts") else _MODEL

    def __setattr__(self, name: str, value: Any) -> None:
        if name in self.__dict__:
            raise FrozenInstanceError(f"settings are fixed once they are checked: {name} cannot become {value!r}")
        super().__setattr__(name, value)

    def tau(self, side: str) -> float:
        return self.tau_u if side == "users" else self.tau_v

    def background_exponent(self, side: str) -> float:
        """beta of a side: s_i ~ (alpha + c_i)^beta where selection is by counts."""
        return self.background_users if side == "users" else self.background_items

    @staticmethod
    def later() -> set[str]:
        """Settings that the first stores do not know of."""
        return set(_BEFORE)

    @staticmethod
    def going_on(given: dict[str, Any], earlier: Settings | None) -> Settings:
        """Given settings; what is not given is as in an earlier fit of the same kind, if there is one."""
        if earlier is None or given["inference"] != earlier.inference:
            return Settings(**given)
        return Settings(**{name: getattr(earlier, name) if value is None else value for name, value in given.items()})

    @staticmethod
    def from_record(record: dict[str, Any]) -> Settings:
        """Settings as a store holds them; one written before a setting came up has it switched off."""
        return Settings(**{**_BEFORE, **record})

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def default_words(name: str) -> str:
    """The default of a setting as people read it, whatever stands for it in the table.

    >>> default_words("alpha"), default_words("temperature")
    ('1.0', '0.0 (1.0 where selection is not "counts")')
    """
    value = getattr(Settings(), name)
    return f'{value!r} ({_MODEL[name]!r} where selection is not "counts")' if name in _MODEL else repr(value)


def describe_settings() -> str:
    """The table of settings in the form of a docstring's parameters."""
    lines = []
    for setting in fields(GivenSettings):
        choices = setting.metadata["choices"]
        kind = "{" + ", ".join(map(repr, choices)) + "}" if choices else setting.type
        default = f"default {default_words(setting.name)}"
        lines += [f"    {setting.name} : {kind}, {default}", f"        {setting.metadata['meaning']}"]
    return "\n".join(lines)
