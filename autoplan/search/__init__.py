"""The search for a plan: candidates, the integer programme, and the checks of its answers."""

from autoplan.search.result import Candidate, ModelTensor, SearchOptions, SearchResult
from autoplan.search.solve import solve, without

__all__ = ["Candidate", "ModelTensor", "SearchOptions", "SearchResult", "solve", "without"]
