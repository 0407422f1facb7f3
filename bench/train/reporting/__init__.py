# SPDX-License-Identifier: Apache-2.0
"""What report.py is made of: results (the raw data), verdicts (what must be shown), document, plots."""
