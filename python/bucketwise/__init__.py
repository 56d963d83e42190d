"""bucketwise in Python: predictions of the best gradient-bucket size and the step time of data-parallel training.

    import bucketwise
    prediction = bucketwise.predict("scenarios/resnet50_8xh100.json", set={"/cluster/ranks": 64})
    prediction.best.bucket_cap_mib, prediction.verdict.text

The program `bucketwise` does the work; it comes along in the wheel. Nothing is imported before it is used.
"""

TYPE_CHECKING = False  # as typing's, which takes a while to import
if TYPE_CHECKING:
    from bucketwise._command import InputError
    from bucketwise._prediction import Plan, Prediction, Setting, Verdict, predict
    from bucketwise._sharded_prediction import ShardedPlan, ShardedPrediction, predict_sharded
    from bucketwise._sweep import sweep

    __version__: str

__all__ = ["InputError", "Plan", "Prediction", "Setting", "ShardedPlan", "ShardedPrediction", "Verdict", "__version__",
           "predict", "predict_sharded", "sweep"]

_MODULES = {"InputError": "_command", "Plan": "_prediction", "Prediction": "_prediction", "Setting": "_prediction",
            "Verdict": "_prediction", "predict": "_prediction", "ShardedPlan": "_sharded_prediction",
            "ShardedPrediction": "_sharded_prediction", "predict_sharded": "_sharded_prediction", "sweep": "_sweep"}


def __getattr__(name: str) -> object:
    if name == "__version__":
        from importlib.metadata import version

        return version("bucketwise")
    if name in _MODULES:
        from importlib import import_module

        return getattr(import_module(f"bucketwise.{_MODULES[name]}"), name)
    raise AttributeError(f"module 'bucketwise' has no attribute '{name}'")


def __dir__() -> "list[str]":
    return __all__
