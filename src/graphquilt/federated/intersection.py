"""Private set intersection: a party learns which of its own nodes another has, and of all others only how many.

The protocol (Diffie-Hellman on an elliptic curve, the package openmined-psi) has two messages. The first party sends
its elements under its own key. The second applies its key on top of them, and adds its own elements under
that key. The first removes its key from the former and compares.
"""

from __future__ import annotations

import hmac
from typing import Any

import numpy as np

from graphquilt.arrays import AnyArray, Int64Array
from graphquilt.errors import FormatError, needs_extra
from graphquilt.federated.pseudonyms import Pseudonyms

__all__ = ["answer_request", "intersect", "new_key", "request"]


def _psi() -> Any:
    with needs_extra("private set intersection", "federated"):
        import private_set_intersection.python as psi
    return psi


def new_key() -> bytes:
    """Return a new secret key for requests."""
    return bytes(_psi().client.CreateWithNewKey(True).GetPrivateKeyBytes())


def request(own: Pseudonyms, key: bytes) -> AnyArray:
    """Return the elements under the party's own key, as bytes."""
    made = _psi().client.CreateFromKey(key, True).CreateRequest(_elements(own, _order(own, key)))
    return _bytes(made)


def answer_request(own: Pseudonyms, asked: AnyArray, sender: str) -> dict[str, AnyArray]:
    """Return the request of ``sender`` under both keys, and the own elements under a key that is used only once."""
    psi, parsed = _psi(), _parsed("Request", asked, sender)
    server = psi.server.CreateWithNewKey(True)
    elements = _elements(own, np.random.default_rng().permutation(len(own)))
    try:
        # Raw elements give no false positives, unlike the compressed sets that the package has too.
        setup = server.CreateSetupMessage(1e-9, len(parsed.encrypted_elements), elements, psi.DataStructure.RAW)
        response = server.ProcessRequest(parsed)
    except (RuntimeError, ValueError) as error:
        raise _refused(sender) from error
    return {"setup": _bytes(setup), "response": _bytes(response)}


def intersect(own: Pseudonyms, key: bytes, setup: AnyArray, response: AnyArray, sender: str) -> Int64Array:
    """Return the places in ``own (k,)`` of the elements that ``sender`` has too, ascending."""
    order = _order(own, key)
    parsed = _parsed("ServerSetup", setup, sender), _parsed("Response", response, sender)
    if len(parsed[1].encrypted_elements) != len(own):
        raise FormatError(
            f"the answer of {sender} is about {len(parsed[1].encrypted_elements)} nodes, and the offer had {len(own)}. "
            f"Ask {sender} to answer the offer again."
        )
    try:
        found = _psi().client.CreateFromKey(key, True).GetIntersection(*parsed)
    except (RuntimeError, ValueError) as error:
        raise _refused(sender) from error
    places = np.unique(np.asarray(found, dtype=np.int64))
    return np.sort(order[places])


def _order(own: Pseudonyms, key: bytes) -> Int64Array:
    """Return an order of the elements that only the owner of the key knows."""
    raw = own.tobytes()
    width = own.dtype.itemsize
    digests = [hmac.digest(key, raw[k : k + width], "sha256") for k in range(0, len(raw), width)]
    return np.array(sorted(range(len(digests)), key=digests.__getitem__), dtype=np.int64)


def _elements(own: Pseudonyms, order: Int64Array) -> list[str]:
    raw, width = own.tobytes(), own.dtype.itemsize
    return [raw[k * width : (k + 1) * width].hex() for k in order.tolist()]


def _bytes(message: Any) -> AnyArray:
    return np.frombuffer(message.SerializeToString(), dtype=np.uint8)


def _parsed(kind: str, content: AnyArray, sender: str) -> Any:
    with needs_extra("private set intersection", "federated"):
        from google.protobuf.message import DecodeError
    message = getattr(_psi(), kind)()
    if content.dtype != np.uint8 or content.ndim != 1:
        raise _refused(sender)
    try:
        message.ParseFromString(content.tobytes())
    except DecodeError as error:
        raise _refused(sender) from error
    return message


def _refused(sender: str) -> FormatError:
    return FormatError(
        f"what {sender} sent for the private set intersection cannot be read; ask {sender} to make it again."
    )
