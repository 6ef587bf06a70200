"""Those who stand beside our learner, one module per family.

`library`, `icarl` and `frozen_library` are Avalanche's methods, called as its documentation calls them; `scikit` and
`stream_learning` those of scikit-learn and River; `fdr`, `remind`, `brain_replay` and `projected_ridge` are written
from their papers because no library has them. None of them may import our engine.
"""
