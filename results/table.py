#!/usr/bin/env python3
"""Prints the validations under results/validation, one line each, as `bucketwise compare` judged them."""

import json
from pathlib import Path

FOLDER = Path(__file__).resolve().parent / "validation"
LINKS = {"1gbit": 0, "300mbit": 1, "loopback": 2}


def main():
    print(f"{'workload, link, repeat':30} {'caps':>4} {'error':>7} {'noise':>7} {'regret':>7} {'over default':>12}  goals")
    files = sorted(FOLDER.glob("*/comparison.json"), key=order)
    met = 0
    for file in files:
        c = json.loads(file.read_text())
        model, link, repeat = file.parent.name.rsplit("_", 2)
        goals = c["meets_error_goal"], c["meets_decision_goal"]
        met += all(goals)
        said = "met" if all(goals) else " and ".join(
            f"{name} missed" for name, is_met in zip(("error", "decision"), goals) if not is_met)
        gain = 1 - 1 / (1 + (c["gain_over_default"] or 0))
        print(f"{f'{model}, {link}, {repeat}':30} {len(c['points']):4} {100 * c['mape']:5.2f} % {100 * c['noise_floor']:5.2f} % "
              f"{100 * c['regret']:5.2f} % {100 * gain:10.2f} %  {said}")
    print(f"{met} of {len(files)} meet both goals")


def order(file):
    model, link, repeat = file.parent.name.rsplit("_", 2)
    return LINKS[link], model, repeat


if __name__ == "__main__":
    main()
