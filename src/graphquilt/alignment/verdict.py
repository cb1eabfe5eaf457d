"""Say in plain words what the figures of an alignment mean."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from graphquilt.alignment.fit import EdgeTable, Fit, FrameFit, culprits
from graphquilt.arrays import Int64Array
from graphquilt.errors import counted
from graphquilt.linalg import components

Grade = Literal["good", "fair", "doubtful", "bad", "unknown"]

GOOD, FAIR = 0.3, 0.7  # edge errors: below the first an overlap fits, above the second it hardly does
SURE, UNSURE = 0.1, 0.25  # how far patches may be misplaced, as a share of how far they extend …
NOISY = 0.85  # … or, where that is more, as a multiple of the error on the overlaps, which noise gives in any case
FIRM, WEAK = 0.3, 0.8  # share of the spectral gap that noise fills
TORN = 0.5  # overlaps contradict each other where the share above and the largest error are both beyond this
GROUP = 3, 0.4  # so many patches, and this share of all, that agree among themselves may be the honest ones
ORDER: tuple[Grade, ...] = ("good", "fair", "doubtful")
MANY = 5  # patches that do not fit are named up to this number
TIED = 1e-5  # a spectral gap below this share of the distance of the next eigenvalue from 1 is rounding errors
AGREE = 1e-3  # overlaps with a smaller error do not contradict each other
THIN = 0.02  # a spectral gap below this is that of a chain, which has few cycles on which errors could show
DRIFTED = 0.1  # rotations that may be further off than this need a full solve
SETTLED = 0.01  # a last round that adds a larger share has not found the directions yet
SEEN, BLIND = 0.09, 0.3  # mean share of the walk that is unseen: below the first little is lost, above the second much
SUITS = 0.7  # a patch that keeps less than this of what its own best directions would keep is not suited by the frame


def verdict(fit: Fit, names: Sequence[str] | None = None) -> str:
    """Say how good the fit is, what is doubtful and what to change, one sentence per line; names are of the patches."""
    space = counted(fit.dim, "dimension")
    lines = [f"{fit.n_patches} patches in {space}, compared on {counted(len(fit.edges), 'overlap')}."]
    if fit.n_patches == 1:
        return f"One patch in {space}: there is nothing to align."
    if len(fit.edges) == 0:
        return lines[0] + "\nNothing was compared, so nothing is known of the fit."
    lines.append(_errors(fit, names))
    if fit.moves_nothing:
        lines.append("All patches lie in one frame, so nothing had to be moved: the errors say how well they agree.")
        lines += [] if fit.frame is None else _frame_sentences(fit.frame)
    else:
        lines += _rotation_sentences(fit)
    lines += _misfits(fit, names)
    if fit.drift > 0:
        lines.append(
            f"Patches were added without a full solve: the rotations may be off by {fit.drift:.2g} (root mean square). "
            + ("Align everything again." if fit.drift > DRIFTED else "That is little.")
        )
    return "\n".join(lines)


def is_tied(fit: Fit) -> bool:
    """Return whether overlaps contradict each other so evenly that several rotations fit equally well.

    The gap of the eigenvalues is compared with the distance of the next from 1, which is small too where a patch graph
    is long, thin and without noise. Directions in which no patch extends may be tied without harm.
    """
    last, following = fit.eigenvalues[-2:]
    return bool(last - following <= TIED * (1 - following)) and bool(fit.edge_errors.max(initial=0) > AGREE)


def tie(fit: Fit) -> str:
    """Say that the rotations of a tied alignment are arbitrary, and what to do."""
    worst = np.argsort(-fit.edge_errors, kind="stable")[:3]
    return (
        "Overlaps contradict each other so evenly that several rotations fit equally well, and rounding "
        f"errors chose one (eigenvalues {fit.dim} and {fit.dim + 1} are both {fit.eigenvalues[-1]:.4f}). The overlaps "
        f"that fit worst are {_named(fit.edges[worst])}."
    )


def grade(fit: Fit) -> Grade:
    """Return the fit in one word: "unknown" where no overlaps were compared, and "bad" where most hardly agree."""
    word = _agreement(fit)
    return max([word, *(cap for cap, _ in _reservations(fit))], key=ORDER.index) if word in ORDER else word


def _reservations(fit: Fit) -> list[tuple[Grade, str]]:
    """Return what is wrong though overlaps may agree, each with the best grade that it allows."""
    found: list[tuple[Grade, str]] = []
    if fit.moves_nothing:
        cap = "good" if fit.frame is None else _frame_cap(fit.frame)
        found += [(cap, "their frame does not suit all patches")]
    elif is_tied(fit):
        found += [("doubtful", "several rotations fit equally well")]
    elif _filled(fit) > FIRM:
        weak = _filled(fit) > WEAK and fit.uncertainty > SURE  # otherwise in directions in which patches hardly extend
        weak |= min(_filled(fit), _trusted(fit).errors.max(initial=0)) > TORN
        found += [("doubtful" if weak else "fair", "the rotations hardly stand out from noise")]
    if fit.uncertainty > SURE:
        errors = _trusted(fit).errors
        limit = max(UNSURE, NOISY * float(np.median(errors)) if len(errors) else 0.0)
        cap = "doubtful" if fit.uncertainty > limit else "fair"
        found += [(cap, "they do not determine well where the patches belong")]
    if fit.drift > DRIFTED:
        found += [("fair", "patches were added without a full solve")]
    if fit.n_stranded:
        found += [("doubtful", "some nodes are only in patches that do not fit")]
    return found


def _filled(fit: Fit) -> float:
    """Return the share of the spectral gap that noise fills; 0 if no cycle tests the rotations."""
    last, following = fit.eigenvalues[-2:].tolist()
    return 0.0 if _is_unchecked(fit) else max((1 - last) / max(1 - following, 1e-300), 0.0)


def _is_unchecked(fit: Fit) -> bool:
    """Return whether no cycle of overlaps tests the rotations; 1 and -1 are the eigenvalues without any rotation."""
    return len(fit.edges) < fit.n_patches or bool(fit.eigenvalues[-2] > 1 - 1e-9 and fit.eigenvalues[-1] < 1e-9 - 1)


def _agreement(fit: Fit) -> Grade:
    table = _trusted(fit)
    if len(table) == 0:
        return "unknown"
    worst, agrees = table.errors.max(), table.errors <= FAIR
    if agrees.all():
        return "good" if worst <= GOOD else "fair"
    # Some patches may spoil most overlaps: the others agree then.
    largest = np.bincount(components(table.pairs[agrees], fit.n_patches)).max()
    alone = 2 * largest <= fit.n_patches and largest < max(GROUP[0], GROUP[1] * fit.n_patches)
    return "bad" if 2 * agrees.sum() < len(table) and alone else "doubtful"


def _trusted(fit: Fit) -> EdgeTable:
    """Return the edges that are not doubted, or all of them where all are."""
    trusted = fit.edge_table.trust >= 1
    return fit.edge_table.take(trusted) if trusted.any() else fit.edge_table


def _errors(fit: Fit, names: Sequence[str] | None) -> str:
    table, word, agreement = _trusted(fit), grade(fit), _agreement(fit)
    these = "the overlaps" if len(table) == len(fit.edges) else "the overlaps that are trusted"
    errors, worst_first = table.errors, table.pairs[np.argsort(-table.errors, kind="stable")]
    middle, worst, m = float(np.median(errors)), float(errors.max()), len(errors)
    figures = f"Error left on an overlap (0 perfect, 1 unrelated): {middle:.2g} in the median, {worst:.2g} at worst."
    bad = int((errors > FAIR).sum())
    if agreement != word:
        but = "; ".join(reason for cap, reason in _reservations(fit) if cap == word)
        return f"{word.capitalize()}: {these} agree{'' if agreement == 'good' else ' roughly'}, but {but}. {figures}"
    if word == "good":
        return f"Good: {these} agree. {figures}"
    if word == "fair":
        return f"Fair: {these} agree roughly. {figures} The worst is {_named(worst_first[:1])}."
    # No advice may depend on how the patches were embedded, which is not known here.
    advice = "Look there."
    if word == "bad":
        advice = (
            f"{_worst_patch(table, names)} Most patches do not agree. Check the input first: the ids, the columns that "
            "were read, and the order of the features."
        )
    return f"{word.capitalize()}: {bad} of {m} overlaps hardly agree, {_named(worst_first[:bad])}. {figures} {advice}"


def _worst_patch(table: EdgeTable, names: Sequence[str] | None) -> str:
    """Name the patch whose overlaps have the largest mean error."""
    ends, errors = table.pairs.ravel(), np.repeat(table.errors, 2)
    degrees = np.bincount(ends)
    means = np.bincount(ends, weights=errors) / np.maximum(degrees, 1)
    k = int(means.argmax())
    return f"{_patch(k, names)} agrees least with its neighbours ({means[k]:.2g} on average)."


def _patch(k: int, names: Sequence[str] | None) -> str:
    """Return what the user calls a patch, to begin a sentence."""
    return f"Patch {k}" if names is None or names[k] == f"patch {k}" else f"Patch {k} ({names[k]})"


def _misfits(fit: Fit, names: Sequence[str] | None) -> list[str]:
    """Name the patches that most bad overlaps have in common, and the bad overlaps that remain."""
    doubted = fit.edge_trust < 1
    bad = doubted if doubted.any() else fit.edge_errors > FAIR
    if not bad.any() or (not doubted.any() and grade(fit) == "bad"):
        return []
    what = "robust alignment distrusts" if doubted.any() else "the alignment leaves a large error on"
    remedy = "It is left out where others have its nodes." if doubted.any() else "Look there."
    patches, rest = culprits(fit.edges, bad)
    degrees = np.bincount(fit.edges.ravel())
    lines = [
        f"{_patch(k, names)} does not fit: {what} {count} of its {degrees[k]} overlaps. {remedy}"
        for k, count in patches[:MANY]
    ]
    if len(patches) > MANY:
        lines.append(f"{len(patches) - MANY} more patches do not fit.")
    if fit.n_stranded:
        nodes = counted(fit.n_stranded, "node") if fit.n_stranded > 0 else "An unknown number of nodes"
        lines.append(f"{nodes} are in no other patch: do not rely on their positions.")
    if doubted.any() and rest.any():
        edges = fit.edges[rest][np.argsort(-fit.edge_errors[rest], kind="stable")]
        others = "other " if patches else ""
        lines.append(
            f"Robust alignment distrusts {counted(len(edges), others + 'overlap')}: {_named(edges)}. Look there."
        )
    return lines


def _rotation_sentences(fit: Fit) -> list[str]:
    """Say how well the overlaps determine where the patches belong, one sentence per line."""
    last, following = fit.eigenvalues[-2:].tolist()
    figures = (
        f"eigenvalue {fit.dim} is {last:.4f} and the next {following:.4f} ± {fit.next_residual:.1g}, so noise fills "
        f"{_filled(fit):.0%} of the gap (eigenvectors solved to {fit.residual:.0e})"
    )
    if _is_unchecked(fit):
        lines = ["No cycle of overlaps tests the rotations, so only the errors above tell how good they are."]
    else:
        hardly = "" if _filled(fit) <= FIRM else "hardly "
        lines = [tie(fit) if is_tied(fit) else f"The rotations {hardly}stand out from noise: {figures}."]
    flat = fit.undetermined > 0
    if flat.any():
        lines.append(
            f"Directions are undetermined in {counted(int(flat.sum()), 'overlap')}, up to "
            f"{int(fit.undetermined.max())} of {fit.dim}: their points do not extend there."
        )
    if fit.uncertainty > SURE:
        is_chain = len(fit.edges) < 1.5 * fit.n_patches and not _is_unchecked(fit)
        thin = last - following < THIN and is_chain  # with more overlaps, noise closed the gap
        where = ", because they form a long chain" if thin else ""
        lines.append(f"Noise may misplace patches by {fit.uncertainty:.0%} of their extent on average{where}.")
    return lines


def _named(edges: Int64Array) -> str:
    named = ", ".join(f"({i}, {j})" for i, j in edges[:6].tolist())
    return named + (f", … {len(edges)} in all" if len(edges) > 6 else "")


def _frame_cap(frame: FrameFit) -> Grade:
    """The best grade that this allows: "good", "fair" or "doubtful"."""
    if frame.unseen.mean() > BLIND:
        return "doubtful"
    poor = frame.unseen.mean() > SEEN or frame.growth > SETTLED or frame.suited.min() < SUITS
    return "fair" if poor else "good"


def _frame_sentences(frame: FrameFit) -> list[str]:
    """Say what the directions keep, and which patch they suit least, one sentence per line."""
    least, blind = int(frame.shares.argmin()), int(frame.unseen.argmax())
    lines = [
        f"The common directions keep {frame.shares.mean():.0%} of the signal; of patch {least} they keep least, "
        f"{frame.shares[least]:.0%}."
    ]
    worst = int(frame.suited.argmin())
    if frame.suited[worst] < SUITS:
        lines.append(
            f"Separate directions would keep {frame.best[worst]:.0%} of patch {worst}: use more dimensions, or "
            "embed it apart."
        )
    if frame.growth > SETTLED:
        lines.append(
            f"The directions have not settled: the last round added {frame.growth:.1%}. Use fewer dimensions, or "
            "features with fewer columns."
        )
    if frame.unseen.mean() > SEEN:
        lines.append(
            f"{frame.unseen.mean():.0%} of a walk's step is unseen on average, and most in patch {blind} "
            f"({frame.unseen[blind]:.0%}): edges leave the patches for where little is known. Use fewer patches."
        )
    return lines
