"""A check that your own store fulfils its contract."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from graphquilt.arrays import AnyArray
from graphquilt.jobs import Record, Store


def check_store(empty_store: Callable[[], Store]) -> None:
    """Raise AssertionError if a store made by ``empty_store()`` breaks the contract of the Store protocol.

    Examples
    --------
    >>> check_store(dict)
    """
    store = empty_store()
    key, other = "patches/00000/graph", "patches/00000/embedding"
    assert key not in store, "an empty store contains a record"
    try:
        store[key]
    except KeyError:
        pass
    else:
        raise AssertionError("an absent record did not raise KeyError")
    arrays: dict[str, AnyArray] = {
        "ids": np.array([5, 3, 9], dtype=np.int64),
        "half": np.array([[0.5, -0.0], [np.inf, 2.0]], dtype=np.float16),
        "columns": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        "none": np.empty((0, 4), dtype=np.float32),
        "text": np.array(["a", "ñandú"]),
    }
    parameters = {"seed": 3, "dim": 2, "names": ["a", "b"], "nested": {"x": 0.1, "y": None, "z": True}}
    store[key] = Record(arrays, parameters)
    assert key in store, "a stored record is not there"
    assert other not in store, "storing one record made another appear"
    back = store[key]
    assert dict(back.parameters) == parameters, f"the parameters came back as {dict(back.parameters)}"
    assert set(back.arrays) == set(arrays), f"the arrays came back as {sorted(back.arrays)}"
    for name, array in arrays.items():
        loaded = np.asarray(back.arrays[name])
        assert loaded.dtype == array.dtype, f"array {name}: {array.dtype} came back as {loaded.dtype}"
        assert loaded.shape == array.shape, f"array {name}: {array.shape} came back as {loaded.shape}"
        assert loaded.tobytes() == array.tobytes(), f"array {name} came back with other values"
    store[other] = Record({"only": np.ones(2)}, {"n": 1})
    store[other] = Record({"only": np.zeros(3)}, {"n": 2})
    again = store[other]
    assert np.array_equal(again.arrays["only"], np.zeros(3)), "a record that was stored again has its old arrays"
    assert again.parameters["n"] == 2, "a record that was stored again has its old parameters"
    assert np.array_equal(store[key].arrays["ids"], arrays["ids"]), "storing one record changed another"
    store["patches"] = Record({}, {"note": "no arrays"})
    assert "patches" in store, "a record without arrays is not there"
    assert store["patches"].parameters["note"] == "no arrays", "a record without arrays lost its parameters"
    assert key in store, "a key that is the beginning of another one displaced it"
