"""Say in plain words what the figures of an alignment mean."""

from __future__ import annotations

from typing import Literal

import numpy as np

from graphquilt.alignment.fit import EdgeTable, Fit, FrameFit
from graphquilt.arrays import BoolArray, Int64Array
from graphquilt.errors import counted

Grade = Literal["good", "fair", "doubtful", "bad", "unknown"]

GOOD, FAIR = 0.3, 0.7  # edge errors: below the first an overlap fits, above the second it hardly does
FIRM, WEAK = 0.3, 0.8  # share of the spectral gap that noise fills
MANY = 5  # patches that do not fit are named up to this number
TIED = 1e-5  # a spectral gap below this share of the distance of the next eigenvalue from 1 is rounding errors
THIN = 0.02  # a spectral gap below this is that of a chain, which has few cycles on which errors could show
SETTLED = 0.01  # a last round that adds a larger share has not found the directions yet
SEEN, BLIND = 0.09, 0.3  # mean share of the walk that is unseen: below the first little is lost, above the second much
SUITS = 0.7  # a patch that keeps less than this of what its own best directions would keep is not suited by the frame


def verdict(fit: Fit) -> str:
    """Say how good the fit is, what is doubtful and what to change, one sentence per line."""
    space = counted(fit.dim, "dimension")
    lines = [f"{fit.n_patches} patches in {space}, compared on {counted(len(fit.edges), 'overlap')}."]
    if fit.n_patches == 1:
        return f"One patch in {space}: there is nothing to align."
    if len(fit.edges) == 0:
        return lines[0] + "\nNothing was compared, so nothing is known of the fit."
    lines.append(_errors(fit))
    in_one_frame = fit.moves_nothing
    if in_one_frame:
        lines.append("All patches lie in one frame, so nothing had to be moved: the errors say how well they agree.")
        lines += [] if fit.frame is None else _frame_sentences(fit.frame)
    else:
        lines.append(_gap(fit))
    if np.any(fit.undetermined > 0) and not in_one_frame:
        lines.append(
            f"{int((fit.undetermined > 0).sum())} overlaps leave directions undetermined, up to "
            f"{int(fit.undetermined.max())} of {fit.dim}: their points do not extend there. Harmless where the "
            "embedding does not use those directions either; a smaller dimension would do."
        )
    lines += _misfits(fit)
    if fit.drift > 0:
        lines.append(
            f"Patches were added without a full solve: the rotations may be off by {fit.drift:.2g} (root mean square). "
            + ("Align everything again." if fit.drift > 0.1 else "That is little.")
        )
    return "\n".join(lines)


def is_tied(fit: Fit) -> bool:
    """Return whether overlaps contradict each other so evenly that several rotations fit equally well.

    Eigenvalue d then equals the next one, and rounding errors choose among their eigenvectors. The gap is compared with
    the distance of the next eigenvalue from 1, which is small too where a patch graph is long, thin and without noise.
    """
    last, following = fit.eigenvalues[-2:]
    return bool(last - following <= TIED * (1 - following)) and len(fit.edges) > 0


def tie(fit: Fit) -> str:
    """Say that the rotations of a tied alignment are arbitrary, and what to do."""
    worst = np.argsort(-fit.edge_errors, kind="stable")[:3]
    return (
        "Undetermined: overlaps contradict each other so evenly that several rotations fit equally well, and rounding "
        f"errors chose one (eigenvalues {fit.dim} and {fit.dim + 1} are both {fit.eigenvalues[-1]:.4f}). The overlaps "
        f"that fit worst are {_named(fit.edges[worst])}. Drop or measure again the one that is wrong, add another "
        "patch edge, or embed these patches again."
    )


def grade(fit: Fit) -> Grade:
    """Return the fit in one word: "unknown" where no overlaps were compared, and "bad" where most hardly agree.

    Overlaps that agree are "doubtful" where the rotations are tied. Patches that agree in one frame are at most "fair"
    or "doubtful" where the frame does not suit them.
    """
    word = _agreement(fit)
    return "doubtful" if word in ("good", "fair") and is_tied(fit) else _capped(word, fit)


def _capped(word: Grade, fit: Fit) -> Grade:
    """Return the word, or a worse one where the frame does not suit the patches."""
    order: tuple[Grade, ...] = ("good", "fair", "doubtful")
    cap = "good" if fit.frame is None else _frame_cap(fit.frame)
    return order[max(order.index(word), order.index(cap))] if word in order else word


def _agreement(fit: Fit) -> Grade:
    errors = _trusted(fit).errors
    if len(errors) == 0:
        return "unknown"
    if errors.max() <= FAIR:
        return "good" if errors.max() <= GOOD else "fair"
    return "bad" if (errors > FAIR).sum() > len(errors) / 2 else "doubtful"


def _trusted(fit: Fit) -> EdgeTable:
    """Return the edges that are not doubted, or all of them where all are."""
    trusted = fit.edge_table.trust >= 1
    return fit.edge_table.take(trusted) if trusted.any() else fit.edge_table


def _errors(fit: Fit) -> str:
    table, word = _trusted(fit), _agreement(fit)
    capped = _capped(word, fit)
    these = "the overlaps" if len(table) == len(fit.edges) else "the overlaps that are trusted"
    errors, worst_first = table.errors, table.pairs[np.argsort(-table.errors, kind="stable")]
    middle, worst, m = float(np.median(errors)), float(errors.max()), len(errors)
    figures = f"Error left on an overlap (0 perfect, 1 unrelated): {middle:.2g} in the median, {worst:.2g} at worst."
    bad = int((errors > FAIR).sum())
    if capped != word:
        return f"{capped.capitalize()}: {these} agree, but their frame does not suit all patches. {figures}"
    if word == "good":
        return f"Good: {these} agree. {figures}"
    if word == "fair":
        return f"Fair: {these} agree roughly. {figures} The worst is {_named(worst_first[:1])}."
    # No advice may depend on how the patches were embedded, which is not known here.
    if word == "bad":
        remedy = "Most patches do not agree: use larger overlaps, fewer dimensions or another embedder."
        advice = f"{_worst_patch(table)} {remedy}"
    elif fit.robust:
        advice = "Embed these patches again, or drop these edges."
    else:
        advice = "Embed these patches again, drop these edges, or align with robust=True (--robust)."
    return f"{word.capitalize()}: {bad} of {m} overlaps hardly agree, {_named(worst_first[:bad])}. {figures} {advice}"


def _worst_patch(table: EdgeTable) -> str:
    """Name the patch whose overlaps have the largest mean error."""
    ends, errors = table.pairs.ravel(), np.repeat(table.errors, 2)
    degrees = np.bincount(ends)
    means = np.bincount(ends, weights=errors) / np.maximum(degrees, 1)
    k = int(means.argmax())
    return f"Patch {k} agrees least with its neighbours ({means[k]:.2g} on average)."


def _misfits(fit: Fit) -> list[str]:
    """Name the patches that most bad overlaps have in common, and the bad overlaps that remain."""
    doubted = fit.edge_trust < 1
    bad = doubted if doubted.any() else fit.edge_errors > FAIR
    if not bad.any() or (not doubted.any() and bad.sum() > len(bad) / 2):
        return []
    what = "robust alignment distrusts" if doubted.any() else "the alignment leaves a large error on"
    patches, rest = culprits(fit.edges, bad)
    degrees = np.bincount(fit.edges.ravel())
    lines = [
        f"Patch {k} does not fit: {what} {count} of its {degrees[k]} overlaps. Embed it again, or leave it out."
        for k, count in patches[:MANY]
    ]
    if len(patches) > MANY:
        lines.append(f"{len(patches) - MANY} more patches do not fit.")
    if doubted.any() and rest.any():
        edges = fit.edges[rest][np.argsort(-fit.edge_errors[rest], kind="stable")]
        others = "other " if patches else ""
        lines.append(
            f"Robust alignment distrusts {counted(len(edges), others + 'overlap')}: {_named(edges)}. Look there."
        )
    return lines


def culprits(edges: Int64Array, bad: BoolArray) -> tuple[list[tuple[int, int]], BoolArray]:
    """Return the patches, each with its number of ``bad (m,)`` edges, that explain most of those, and the bad rest.

    A patch is to blame if at least two of its edges, and more than half of them, are bad and not explained by another
    patch. The patch with the most bad edges is blamed first.

    Examples
    --------
    >>> star = np.array([[0, 3], [1, 3], [2, 3], [0, 1], [1, 2], [0, 2]])
    >>> patches, rest = culprits(star, np.array([True, True, True, False, False, True]))
    >>> patches, rest.tolist()
    ([(3, 3)], [False, False, False, False, False, True])
    """
    rest, patches = np.array(bad), []
    p = int(edges.max(initial=-1)) + 1
    degrees = np.bincount(edges.ravel(), minlength=p)
    while rest.any():
        counts = np.bincount(edges[rest].ravel(), minlength=p)
        blamed = np.where((counts >= 2) & (2 * counts > degrees), counts + counts / (degrees + 1), 0)
        k = int(blamed.argmax())
        if blamed[k] == 0:
            break
        patches.append((k, int((bad & (edges == k).any(axis=1)).sum())))
        rest &= ~(edges == k).any(axis=1)
    return patches, rest


def _gap(fit: Fit) -> str:
    last, following = float(fit.eigenvalues[-2]), float(fit.eigenvalues[-1])
    # Without cycles rotations fit whatever was measured; 1 and -1 are what two patches give, and no rotation at all.
    if len(fit.edges) < fit.n_patches or (last > 1 - 1e-9 and following < 1e-9 - 1):
        return "Unchecked: no cycle of overlaps tests the rotations, so only the errors above tell how good they are."
    if is_tied(fit):
        return tie(fit)
    # Noise lowers the d-th eigenvalue from 1, and where it comes near the next one the two are confused.
    filled = (1 - last) / max(1 - following, 1e-300)
    figures = (
        f"eigenvalue {fit.dim} is {last:.4f} and the next {following:.4f} ± {fit.next_residual:.1g}, so noise fills "
        f"{max(filled, 0):.0%} of the gap (eigenvectors solved to {fit.residual:.0e})"
    )
    if filled <= FIRM and last - following < THIN:
        thin = "Thin: the patch graph is long and thin, and errors add up along it without being noticed"
        return f"{thin}; {figures}. Add patch edges across."
    if filled <= FIRM:
        return f"Firm: the rotations are well determined; {figures}."
    if filled <= WEAK:
        return f"Soft: the rotations are determined, with little to spare; {figures}. More patch edges would help."
    return f"Weak: the rotations are hardly determined; {figures}. Add patch edges, or embed in fewer dimensions."


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
