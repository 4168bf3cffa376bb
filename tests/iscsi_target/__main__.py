"""iscsiadm as a program."""

import sys
from pathlib import Path

from tests.iscsi_target.stand_in import StandIn

status, stated = StandIn(Path(sys.argv[1])).run(sys.argv[2:])
sys.stdout.write(stated)
sys.exit(status)
