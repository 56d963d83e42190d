"""Did a decision hold, by steps that were measured in rounds? The rules of `bucketwise validate`
(calibrate/comparison/paired_steps.h and decision.h), for settings that something else ran.

A machine's speed drifts by more than settings differ, so settings are compared within rounds: the logarithms of two steps
of one round, their mean without the fifth at each end, and Tukey and McLaughlin's interval of it (1963).
"""

import itertools
import math
from statistics import NormalDist, mean, stdev

GOAL, MOST_NOISE, FEWEST_ROUNDS = 0.01, 0.02, 3
PRIOR_DEGREES = 4  # of the variance of all pairs together
OUTSIDE = 0.05


def student_t_exceeded(probability, degrees):
    """Cornish and Fisher's expansion (1938): within 0.1 % for six degrees or more and probabilities from 0.0025 on."""
    z = NormalDist().inv_cdf(1 - probability)
    terms = (z, (z**3 + z) / 4, (5 * z**5 + 16 * z**3 + 3 * z) / 96, (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
             (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160)
    return sum(term / degrees**power for power, term in enumerate(terms))


class Differences:
    """How one setting's steps differ from another's, both by round and in ms."""

    def __init__(self, steps, others):
        each = sorted(math.log(one / other) for one, other in zip(steps, others))
        cut = len(each) // 5
        kept = each[cut:len(each) - cut]
        self.rounds, self.mean, self.degrees = len(each), mean(kept), len(kept) - 1
        winsorized = [min(max(one, kept[0]), kept[-1]) for one in each]
        self.variance = (len(each) / len(kept) * stdev(winsorized)) ** 2


def decision_of(times, advised):
    """`times`: by setting, as many ms as there are rounds, at least two. Returns `best`, the setting measured to be; `regret`
    of the advised one over it, with its 95 % interval; `verdict` held, missed or inconclusive; `settled`: more rounds would
    change no verdict."""
    if len(times) == 1:
        return {"best": advised, "regret": 0.0, "regret_interval": [0.0, 0.0], "verdict": "held", "settled": True}
    pairs = {pair: Differences(*(times[one] for one in pair)) for pair in itertools.permutations(times, 2)}
    degrees = sum(pair.degrees for pair in pairs.values())
    pooled = sum(pair.degrees * pair.variance for pair in pairs.values()) / degrees

    def slower(one, other, outside=OUTSIDE):
        if one == other:
            return 0.0, 0.0, 0.0
        pair = pairs[one, other]
        variance = (pair.degrees * pair.variance + PRIOR_DEGREES * pooled) / (pair.degrees + PRIOR_DEGREES)
        half = student_t_exceeded(outside / 2, pair.degrees + PRIOR_DEGREES) * math.sqrt(variance / pair.rounds)
        return tuple(math.expm1(pair.mean + each) for each in (-half, 0, half))

    rounds = len(times[advised])
    best = min(times, key=lambda setting: slower(setting, advised)[1])
    one_of_many = OUTSIDE / max(len(times) - 1, 1)
    running = [setting for setting in times if setting == best or rounds < FEWEST_ROUNDS
               or slower(setting, best, one_of_many)[0] <= 0]
    middle = max(slower(advised, best)[1], 0.0)
    high = max(middle, *(slower(advised, setting)[2] for setting in running))
    low = min(middle, max(slower(advised, setting, one_of_many)[0] for setting in times))
    verdict = "missed" if low > GOAL else "held" if high <= GOAL + MOST_NOISE else "inconclusive"
    against = best if verdict == "missed" else advised
    settled = rounds >= FEWEST_ROUNDS and all(slower(against, setting)[2] <= GOAL for setting in running)
    return {"best": best, "regret": middle, "regret_interval": [max(low, 0.0), high], "verdict": verdict, "settled": settled}


def of_plans(times, plan_of):
    """`times` by plan_of(setting): settings of the same plan are one, measured more than once in each round."""
    found = {}
    for setting, ms in times.items():
        found.setdefault(plan_of(setting), []).append(ms)
    return {plan: [mean(each) for each in zip(*all_ms)] for plan, all_ms in found.items()}


def told(decision):
    low, high = (100 * end for end in decision["regret_interval"])
    return f"regret {100 * decision['regret']:.1f} % ({low:.1f} to {high:.1f}), decision {decision['verdict']}"
