"""`make accept ISSUE=n`: what an issue says the project must show, measured, one check a line of the issue.

Results are stored under ``.accept/COMMIT/issue-N/CHECK.json``. A check that passed on this commit is not run again; a
working tree with changes is stored under ``COMMIT-changed`` and always runs. Each check runs in a process of its own.
"""
