"""Two ways to find the nodes that two parties share: pseudonyms, and private set intersection.

Pseudonyms are keyed digests that take the place of node ids in everything that leaves a party. With private set
intersection (Diffie-Hellman on an elliptic curve, the package openmined-psi) a party learns which of its own nodes
another has, and of all others only how many. It has two messages. The first party sends its elements under its own
key. The second applies its key on top of them, and adds its own elements under that key. The first removes its key
from the former and compares.
"""

from __future__ import annotations

import hmac
from typing import Any

import numpy as np
import numpy.typing as npt

from graphquilt.arrays import AnyArray, Int64Array
from graphquilt.errors import FormatError, needs_extra
from graphquilt.federated.messages import subkey
from graphquilt.federated.nodes import unique_ids

WIDTH = 32  # bytes of a pseudonym
Pseudonyms = npt.NDArray[np.bytes_]
_DTYPE = np.dtype(f"S{WIDTH}")


def pseudonyms(ids: npt.ArrayLike, key: bytes, round_id: str) -> Pseudonyms:
    """Return HMAC-SHA256(key, round id, node id) for each of ``ids (n,)``.

    Another round gives other pseudonyms: nobody can link nodes between rounds, even with the same key.
    """
    secret, prefix = subkey(key, "pseudonyms"), bytes.fromhex(round_id)
    texts = unique_ids(ids)
    digests = b"".join(hmac.digest(secret, prefix + text.encode(), "sha256") for text in texts)
    return np.frombuffer(digests, dtype=_DTYPE)


def checked_pseudonyms(array: AnyArray, sender: str) -> Pseudonyms:
    """Return the pseudonyms of a message, and refuse what is not a sorted list of different ones."""
    if array.dtype != _DTYPE or array.ndim != 1 or not np.all(array[1:] > array[:-1]):
        raise FormatError(
            f"the pseudonyms of {sender} are not {WIDTH} bytes each, all different, in ascending order; ask {sender} "
            "to make the file again."
        )
    return array


def shared_places(own: Pseudonyms, other: Pseudonyms) -> Int64Array:
    """Return the places in ``own (k,)``, which are sorted, of the pseudonyms that ``other`` has too, ascending."""
    return np.asarray(np.intersect1d(own, other, assume_unique=True, return_indices=True)[1], dtype=np.int64)


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
    digests = [hmac.digest(key, bytes.fromhex(one), "sha256") for one in _elements(own, np.arange(len(own)))]
    return np.array(sorted(range(len(digests)), key=digests.__getitem__), dtype=np.int64)


def _elements(own: Pseudonyms, order: Int64Array) -> list[str]:
    raw = own.tobytes()
    return [raw[k * WIDTH : (k + 1) * WIDTH].hex() for k in order.tolist()]


def _bytes(message: Any) -> AnyArray:
    return np.frombuffer(message.SerializeToString(), dtype=np.uint8)


def _parsed(kind: str, content: AnyArray, sender: str) -> Any:
    from google.protobuf.message import DecodeError

    message = getattr(_psi(), kind)()
    try:
        message.ParseFromString(content.tobytes())
    except DecodeError as error:
        raise _refused(sender) from error
    return message


def _refused(sender: str) -> FormatError:
    return FormatError(f"what {sender} sent for the set intersection cannot be read; ask {sender} to make it again.")
