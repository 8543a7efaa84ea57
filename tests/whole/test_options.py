"""Options and settings: checked in one way, written down once."""

from __future__ import annotations

import inspect
import pickle
from dataclasses import FrozenInstanceError, fields

import numpy as np
import pytest
from sklearn.base import clone

import pairsym_dask as ps
from pairsym_dask.cli import pairsym
from pairsym_dask.options import fraction, one_of, positive_number, seed, truth, whole_number
from pairsym_dask.settings import Settings


@pytest.mark.parametrize("value", [10, 10.0, np.int8(10), np.float32(10), np.uint64(10)])
def test_whole_numbers_of_any_kind_are_ints(value):
    assert whole_number("n", value, least=1) == 10
    assert type(whole_number("n", value)) is int


@pytest.mark.parametrize("value", [True, np.True_, "ten", "10", 2.5, float("nan"), float("inf"), None, [3], 0])
def test_everything_else_is_refused_with_the_same_words(value):
    with pytest.raises(ps.InputError, match=r"^n must be a whole number, at least 1, not "):
        whole_number("n", value, least=1)


def test_seeds_have_an_upper_limit():
    assert seed(2**64 - 1) == 2**64 - 1
    with pytest.raises(ps.InputError, match=r"a whole number, at least 0 and below 2\*\*64, not 1844"):
        seed(2**64)


def test_numbers_fractions_words_and_truth_values():
    assert positive_number("tau", np.float32(0.5)) == 0.5
    assert positive_number("tau", 0, zero=True) == 0
    assert fraction("popularity", 1, ends=True) == 1
    assert one_of("way", "up", ("up", "down")) == "up"
    assert truth("biases", False) is False
    for wrong, words in [
        (lambda: positive_number("tau", 0), "tau must be a finite number above 0, not 0"),
        (lambda: positive_number("tau", "0.1"), "tau must be a finite number above 0, not '0.1'"),
        (lambda: fraction("share", 1.0), "share must be a number between 0 and 1, not 1.0"),
        (lambda: one_of("way", ["up"], ("up", "down")), r"way must be 'up' or 'down', not \['up'\]"),
        (lambda: truth("biases", 1), "biases must be True or False, not 1"),
    ]:
        with pytest.raises(ps.InputError, match=words):
            wrong()


def test_the_same_n_is_taken_everywhere(small_model):
    held_out = small_model.recommend(0, n=1).rename(columns=str)[["user", "item"]]
    assert len(small_model.recommend(0, n=3.0)) == 3
    assert ps.evaluate(small_model, held_out, n=3.0).overall["hr"] == 1.0


def test_every_setting_is_a_parameter_a_param_and_an_option_with_one_default():
    parameters = inspect.signature(ps.PairedSymbols).parameters
    options = {option.name: option for option in pairsym.commands["fit"].params}
    for setting in fields(Settings):
        assert parameters[setting.name].default == setting.default
        assert ps.PairedSymbols().get_params()[setting.name] == setting.default
        assert options[setting.name].default == setting.default
        assert options[setting.name].help == setting.metadata["meaning"]
        assert f"{setting.name} : " in ps.PairedSymbols.__doc__
    assert list(parameters) == [setting.name for setting in fields(Settings)]


def test_checked_settings_cannot_change_and_compare_by_value():
    settings = Settings(factors=3.0, dtype=np.float64)
    assert (settings.factors, settings.dtype) == (3, "float64")
    assert settings == Settings(factors=3, dtype="float64") == pickle.loads(pickle.dumps(settings))
    assert len({settings, Settings(factors=3, dtype="float64"), Settings()}) == 2
    with pytest.raises(FrozenInstanceError, match="factors cannot become 4"):
        settings.factors = 4


LEVERS = ("prior_growth", "background_users", "background_items", "temperature", "discount")


def test_a_lever_that_is_not_given_is_found_by_the_other_settings():
    """Whatever the defaults of the variational fit are, draws are from the model itself."""
    off = {name: getattr(Settings(inference="gibbs"), name) for name in LEVERS}
    turned = {name: getattr(Settings(), name) for name in LEVERS}
    assert all(turned[name] != off[name] for name in LEVERS)
    assert Settings(selection="counts") == Settings()
    assert {name: getattr(Settings(inference="gibbs", selection="counts"), name) for name in LEVERS} == off
    for selection in ("bayes", "constant"):
        assert {name: getattr(Settings(selection=selection), name) for name in LEVERS} == off
    assert Settings(inference="gibbs", **off).to_dict() == Settings(inference="gibbs").to_dict()
    for name in LEVERS:
        with pytest.raises(ps.InputError, match=rf"^{name}=0.7 is a lever of the variational fit.*leave it out"):
            Settings(inference="gibbs", selection="counts", **{name: 0.7})
    record = Settings(inference="gibbs").to_dict()
    assert Settings.from_record({k: v for k, v in record.items() if k not in LEVERS}).to_dict() == record


def test_given_settings_are_kept_as_given():
    model = ps.PairedSymbols(discount=0.5)
    assert model.get_params()["temperature"] is None
    assert model.set_params(temperature=0.5).get_params()["temperature"] == 0.5
    assert clone(model).get_params() == model.get_params()
    assert Settings(**model.set_params(temperature=None).get_params()).temperature == Settings().temperature
