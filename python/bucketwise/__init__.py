"""bucketwise in Python: predictions of the best gradient-bucket size and the step time of data-parallel training.

    import bucketwise
    prediction = bucketwise.predict("scenarios/resnet50_8xh100.json", set={"/cluster/ranks": 64})
    prediction.best.bucket_cap_mib

The program `bucketwise` does the work, and comes along in the wheel. Nothing is imported before it is used.
"""

__all__ = ["__version__"]


def __getattr__(name: str) -> object:
    if name == "__version__":
        from importlib.metadata import version

        return version("bucketwise")
    raise AttributeError(f"module 'bucketwise' has no attribute '{name}'")
