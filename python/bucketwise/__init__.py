"""bucketwise in Python: predictions of the best gradient-bucket size and the step time of data-parallel training.

    import bucketwise
    prediction = bucketwise.predict("scenarios/resnet50_8xh100.json", set={"/cluster/ranks": 64})
    prediction.best.bucket_cap_mib, prediction.verdict.text

The program `bucketwise` does the work; it comes along in the wheel. Nothing is imported before it is used.
"""

TYPE_CHECKING = False  # as typing's, which takes a while to import
if TYPE_CHECKING:
    from bucketwise._command import InputError
    from bucketwise._prediction import Plan, Prediction, Setting, Verdict, predict, sweep

    __version__: str

__all__ = ["InputError", "Plan", "Prediction", "Setting", "Verdict", "__version__", "predict", "sweep"]


def __getattr__(name: str) -> object:
    if name == "__version__":
        from importlib.metadata import version

        return version("bucketwise")
    if name in __all__:
        from importlib import import_module

        return getattr(import_module(f"bucketwise.{'_command' if name == 'InputError' else '_prediction'}"), name)
    raise AttributeError(f"module 'bucketwise' has no attribute '{name}'")


def __dir__() -> "list[str]":
    return __all__
