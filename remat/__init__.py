"""remat: gradient checkpointing for JAX that says what it keeps.

Public names are re-exported here; the one-page map of the package is ARCHITECTURE.md.
"""

from types import ModuleType as _ModuleType

from remat import policies as policies
from remat.autodiff import grad as grad
from remat.autodiff import jvp as jvp
from remat.autodiff import linearize as linearize
from remat.autodiff import value_and_grad as value_and_grad
from remat.autodiff import vjp as vjp
from remat.checkpoint import checkpoint as checkpoint
from remat.checkpoint import checkpoint as remat  # noqa: F401
from remat.checkpoint import checkpoint_name as checkpoint_name
from remat.checkpoint import checkpoint_name as name  # noqa: F401
from remat.custom_rules.custom_gradient import custom_gradient as custom_gradient
from remat.custom_rules.custom_vjp import custom_vjp as custom_vjp
from remat.custom_rules.numerical import check_grads as check_grads
from remat.errors import BudgetError as BudgetError
from remat.errors import OverriddenPolicyWarning as OverriddenPolicyWarning
from remat.errors import PlanError as PlanError
from remat.errors import RematError as RematError
from remat.errors import RematWarning as RematWarning
from remat.errors import TargetError as TargetError
from remat.errors import TargetUnavailableError as TargetUnavailableError
from remat.errors import UnknownNameWarning as UnknownNameWarning
from remat.errors import UselessPolicyWarning as UselessPolicyWarning
from remat.findings.check import check as check
from remat.findings.finding import Finding as Finding
from remat.findings.finding import Findings as Findings
from remat.inspect.compare import compare as compare
from remat.inspect.comparison import Comparison as Comparison
from remat.inspect.explanation import Explanation as Explanation
from remat.inspect.explanation import explain as explain
from remat.inspect.pareto import Pareto as Pareto
from remat.inspect.pareto import pareto as pareto
from remat.inspect.plan import Plan as Plan
from remat.inspect.plan import load_plan as load_plan
from remat.inspect.plan import plan as plan
from remat.inspect.requirements import Requirements as Requirements
from remat.inspect.requirements import requirements as requirements
from remat.inspect.residuals import Residual as Residual
from remat.inspect.residuals import Residuals as Residuals
from remat.inspect.residuals_diff import ResidualsDiff as ResidualsDiff
from remat.inspect.retrieval_log import RetrievalLog as RetrievalLog
from remat.inspect.retrieval_log import retrieval_log as retrieval_log
from remat.inspect.saved import saved_residuals as saved_residuals
from remat.inspect.schedule import Schedule as Schedule
from remat.inspect.schedule import schedule as schedule
from remat.inspect.timeline import Timeline as Timeline
from remat.inspect.timeline import timeline as timeline
from remat.inspect.why import Why as Why
from remat.inspect.why import why as why
from remat.ir.program import Program as Program
from remat.loops.chunked_map import chunked_map as chunked_map
from remat.loops.scan import checkpointed_scan as checkpointed_scan
from remat.loops.while_loop import bounded_while_loop as bounded_while_loop
from remat.lower import lower as lower
from remat.recursive import recursive_checkpoint as recursive_checkpoint
from remat.report.html.page import html_report as html_report
from remat.report.show import print_fwd_bwd as print_fwd_bwd
from remat.report.show import print_saved_residuals as print_saved_residuals
from remat.targets.measure import Measurement as Measurement
from remat.targets.measure import measure as measure
from remat.targets.target import Target as Target
from remat.trace import trace as trace

__version__ = "0.1.0"

__all__ = sorted(  # pyright: ignore[reportUnsupportedDunderAll]
    key
    for key, value in globals().items()
    if key == "policies" or not (key.startswith("_") or isinstance(value, _ModuleType))
)


def __dir__() -> list[str]:
    """The public names, without the modules that they are in."""
    return [*__all__, "__version__"]
