"""What a reader of a ring must know: how it was compared, and why figures differ from the paper's."""

from __future__ import annotations

from benchmarks.reporting.ring_tables import OUTDATED_NOTE, ahead_of_ours, on_other_machines
from benchmarks.ring.options import RAW_EXAMPLES, RAW_PER_CLASS, STANDS_FOR
from benchmarks.ring.result import RingResult

COLUMNS = (
    "Forgetting: best accuracy an episode's classes ever had, less the final one; transfer: the final less the first. "
    "Kept: weights, statistics and memories; raw: the part that holds examples as they came. Whether a learner saved "
    "between two episodes goes on bit by bit was tried, with the object pickled and the random state restored."
)

_FAR = 5.0
"""Points from the paper's figure at which a row is explained."""

_WHY = {
    "der": "DER: Avalanche stores the logits of the end of an episode and replays none within the first; the paper ran "
    "Mammoth, which stores them while it learns and replays from the second batch on.",
    "er": "ER: Avalanche fills the replay buffer at the end of an episode; the paper ran Mammoth, which fills it while "
    "it learns.",
    "fdr": "FDR: a step of its own for the distance, as in Mammoth, which the paper ran, with rate and batch of the "
    "paper's table. The table does not say how much momentum, on which much depends; here 0.9.",
    "icarl": "iCaRL: Avalanche's, its loss over the classes seen as its paper has it, without the mirror images that "
    "it averages exemplars with (digits have none).",
    "agem": "A-GEM: Avalanche's memory has an equal part for every episode and a sample of all of them.",
    "sgd": "SGD: the paper names no settings; ours are those of its ER, whose memory SGD lacks.",
    "joint": "Joint: the paper names no settings; ours are iCaRL's.",
    "sharp-paper": "The paper's preset: see docs/benchmarks.md, Accuracy.",
}


_NOT_PRETRAINED = (
    "Deep SLDA, FeCAM, REMIND and BIR ask for pretrained layers; there are none here, so they are trained on the "
    "first episode and then frozen (BIR on grey images learns all its layers, as its paper does there). On vectors "
    "these four see the vectors themselves."
)
_PRETRAINED = (
    "All have layers of one network that was pretrained with the contrastive loss, frozen: ours and REMIND those "
    "before the paper's cut, BIR all convolutions, Deep SLDA, FeCAM and random projections all but the output layer. "
    "Who freezes none is not here. Where few images stand in for a large data set, REMIND and the paper's preset train "
    "as many steps as they would there."
)


def _budget(result: RingResult) -> str:
    dataset, memory = result.settings["dataset"], result.settings["memory"]
    if result.settings.get("pretrained"):
        dataset = STANDS_FOR.get(dataset, dataset)
    if RAW_EXAMPLES.get(dataset) == memory:
        return (
            ": the paper's budget, as many bytes as SHARP's short-term memory. As in the paper, labels, logits and LTM "
            "do not count against it."
        )
    if memory == RAW_PER_CLASS * result.data["classes"]:
        return ": twenty per class, as iCaRL's paper has it; the paper has no budget for this data."
    return ", as asked for."


def remarks(result: RingResult) -> list[str]:
    """What makes figures of this ring incomparable, on top of the page."""
    found = [OUTDATED_NOTE] if any(standing.outdated for standing in result.standings) else []
    cut = {standing.runs[0].fraction for standing in result.standings if standing.runs[0].fraction < 1.0}
    if cut:
        who = [standing.title for standing in result.standings if standing.runs[0].fraction < 1.0]
        shares = " or ".join(f"{fraction:g}" for fraction in sorted(cut))
        found.append(f"Learned from {shares} of the training set only: {', '.join(who)}.")
    if result.data["judged_by"] != "the test set":
        found.append("Judged by examples split off from the training set.")
    records = [standing.to_dict() for standing in result.standings]
    found.append(on_other_machines(records, result.machine))
    lead = ahead_of_ours(records)
    if lead:
        found.append("Ahead of ours without raw data: " + ", ".join(record["title"] for record in lead) + ".")
    return [remark for remark in found if remark]


def explanations(result: RingResult) -> list[str]:
    """How it was compared, and the rows that lie far from the paper's."""
    memory, pretrained = result.settings["memory"], result.settings.get("pretrained")
    found = [
        f"Everyone gets the same episodes in the same order. Those that replay examples may keep {memory:,}"
        f"{_budget(result)}",
        "Networks have the paper's shape, dense, with one output per class, and the paper's settings of its comparison "
        f"(its supplement, {'table 4' if pretrained else 'table 5'}). {_PRETRAINED if pretrained else _NOT_PRETRAINED}",
        "Of images our learner keeps activations and features, no pixels. Of vectors its short-term and episodic "
        "memory hold some of the vectors, packed, and they are counted as raw.",
    ]
    for standing in result.standings:
        figure = result.published.get(standing.entry.published)
        mean = standing.mean("accuracy")
        if figure is None or mean is None or abs(100 * mean - figure["mean"]) <= _FAR:
            continue
        why = _WHY.get(standing.entry.name)
        if why is not None:
            found.append(f"{why} Here {100 * mean:.1f}, there {figure['mean']:.1f}.")
    return found
