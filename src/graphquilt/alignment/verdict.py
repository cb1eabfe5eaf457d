"""Say in plain words what the figures of an alignment mean."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from graphquilt.arrays import Int64Array

if TYPE_CHECKING:
    from graphquilt.alignment.transforms import Alignment

__all__ = ["verdict"]

GOOD, FAIR = 0.3, 0.7  # edge errors: below the first an overlap fits, above the second it hardly does
FIRM, WEAK = 0.3, 0.8  # share of the spectral gap that noise fills
THIN = 0.02  # a spectral gap below this is that of a chain, which has few cycles on which errors could show


def verdict(fit: Alignment) -> str:
    """Say how good the fit is, what is doubtful and what to change, one sentence per line."""
    lines = [f"{fit.n_patches} patches in {fit.dim} dimensions, compared on {len(fit.edges)} overlaps."]
    if len(fit.edges) == 0:
        return lines[0] + "\nNothing was compared, so nothing is known of the fit."
    lines += [_errors(fit), _gap(fit)]
    if np.any(fit.undetermined > 0):
        lines.append(
            f"{int((fit.undetermined > 0).sum())} overlaps leave directions undetermined, up to "
            f"{int(fit.undetermined.max())} of {fit.dim}: their points do not extend there. Harmless where the "
            "embedding does not use those directions either; a smaller dimension would do."
        )
    doubted = fit.distrusted
    if len(doubted):
        lines.append(f"Robust alignment distrusts {len(doubted)} overlaps: {_named(doubted)}. Look at those.")
    if fit.drift > 0:
        lines.append(
            f"Patches were added without a full solve: the rotations may be off by {fit.drift:.2g} (root mean square). "
            + ("Align everything again." if fit.drift > 0.1 else "That is little.")
        )
    return "\n".join(lines)


def _errors(fit: Alignment) -> str:
    middle, worst = float(np.median(fit.edge_errors)), float(fit.edge_errors.max())
    figures = f"Error left on an overlap (0 perfect, 1 unrelated): {middle:.2g} in the median, {worst:.2g} at worst."
    bad, m = int((fit.edge_errors > FAIR).sum()), len(fit.edges)
    if worst <= GOOD:
        return f"Good: the overlaps agree. {figures}"
    if bad == 0:
        return f"Fair: the overlaps agree roughly. {figures} The worst is {_named(fit.worst_edges(1))}."
    word, advice = "Doubtful", "Embed these patches again, drop these edges, or use robust=True."
    if bad > m / 2:
        word, advice = (
            "Bad",
            "Most patches do not agree: train them longer, in fewer dimensions, or with larger overlaps.",
        )
    return f"{word}: {bad} of {m} overlaps hardly agree, {_named(fit.worst_edges(bad))}. {figures} {advice}"


def _gap(fit: Alignment) -> str:
    last, following = float(fit.eigenvalues[-2]), float(fit.eigenvalues[-1])
    # Without cycles rotations fit whatever was measured; 1 and -1 are what two patches give, and no rotation at all.
    if len(fit.edges) < fit.n_patches or (last > 1 - 1e-9 and following < 1e-9 - 1):
        return "Unchecked: no cycle of overlaps tests the rotations, so only the errors above tell how good they are."
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
