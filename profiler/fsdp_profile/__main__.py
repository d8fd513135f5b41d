"""`python -m fsdp_profile`: the same as `fsdp-profile`."""

import sys

from fsdp_profile.commands import main

sys.exit(main())
