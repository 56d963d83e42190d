"""Makes the seeds of nsys_fuzzer: the steps of kineto_fuzzer's seeds as Nsight Systems exports them.

usage: make_nsys_seeds.py KINETO_SEEDS_FOLDER OUTPUT_FOLDER

Each with ranges of PyTorch's operations, and with NCCL's payloads instead. Pages are small, as the fuzzer
changes short inputs faster.
"""

import json
import pathlib
import sqlite3
import sys

WORK = "start INT, end INT, deviceId INT, contextId INT, streamId INT, correlationId INT, globalPid INT"
SCHEMA = f"""
PRAGMA page_size = 512;
CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT);
CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL ({WORK}, demangledName INT, shortName INT);
CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY ({WORK}, bytes INT, copyKind INT);
CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INT, end INT, globalTid INT, correlationId INT, nameId INT);
CREATE TABLE NVTX_EVENTS (start INT, end INT, eventType INT, text TEXT, textId INT, globalTid INT, jsonText TEXT);
"""
PROCESS = 1000 << 24


def insert(database, table, **values):
    columns = ", ".join(values)
    places = ", ".join("?" * len(values))
    database.execute(f"INSERT INTO {table} ({columns}) VALUES ({places})", list(values.values()))


class Export:
    def __init__(self, file, with_operations):
        file.unlink(missing_ok=True)
        self.database = sqlite3.connect(file)
        self.database.executescript(SCHEMA)
        self.with_operations = with_operations
        self.strings = {}

    def string(self, text):
        if text not in self.strings:
            self.strings[text] = len(self.strings) + 1
            insert(self.database, "StringIds", id=self.strings[text], value=text)
        return self.strings[text]

    def range(self, begin, end, event, text, payload=None):
        insert(self.database, "NVTX_EVENTS", start=begin, end=end, eventType=59, text=text,
               globalTid=PROCESS + event["tid"], jsonText=payload)

    def add(self, event):
        begin = round(event["ts"] * 1000)
        end = begin + round(event["dur"] * 1000)
        category, name, arguments = event["cat"].lower(), event["name"], event.get("args", {})
        if category in ("kernel", "gpu_memcpy", "memcpy"):
            work = {"start": begin, "end": end, "deviceId": 0, "contextId": 1, "streamId": arguments.get("stream", 7),
                    "correlationId": arguments.get("correlation"), "globalPid": PROCESS}
            if category == "kernel":
                insert(self.database, "CUPTI_ACTIVITY_KIND_KERNEL", **work, demangledName=self.string(name))
            else:
                insert(self.database, "CUPTI_ACTIVITY_KIND_MEMCPY", **work, bytes=arguments.get("bytes"),
                       copyKind=8 if "DtoD" in name else 2)
        elif category in ("cuda_runtime", "runtime"):
            insert(self.database, "CUPTI_ACTIVITY_KIND_RUNTIME", start=begin, end=end, globalTid=PROCESS + event["tid"],
                   correlationId=arguments.get("correlation"), nameId=self.string(name + "_v7000"))
        else:
            self.add_range(begin, end, event, name, arguments)

    def add_range(self, begin, end, event, name, arguments):
        elements = arguments.get("In msg nelems")
        if elements is not None and not self.with_operations:
            payload = {"NCCL communicator ID": 7, "Message size [bytes]": 4 * elements}
            self.range(begin - 1900, begin - 1800, event, "ncclAllReduce", json.dumps(payload))
        if name.startswith(("ProfilerStep", "Optimizer.step")):
            self.range(begin, end, event, name)
        elif self.with_operations:
            sizes = [[elements]] if elements is not None else arguments.get("Input Dims")
            self.range(begin, end, event, f"{name}, op_id = 3" + (f", sizes = {sizes}" if sizes else ""))


def main():
    seeds, output = map(pathlib.Path, sys.argv[1:])
    output.mkdir(parents=True, exist_ok=True)
    for file in sorted(seeds.glob("*.json")):
        document = json.loads(file.read_text())
        events = document["traceEvents"] if isinstance(document, dict) else document
        for form, with_operations in (("operations", True), ("payloads", False)):
            export = Export(output / f"{file.stem}_{form}.sqlite", with_operations)
            for event in events:
                if event.get("ph") == "X":
                    export.add(event)
            export.database.commit()
            export.database.close()


if __name__ == "__main__":
    main()
