"""A failback, before the copier of the other direction starts: what the old cluster has is deleted,
and gets copied anew.

Offsets of the two clusters are not the same, so nothing tells where their histories part: all of it
goes. Positions of the copier that read these topics go with them. linkflap makes the topics again
before it starts the copier.
"""

import os
import re
import sys
import time

from confluent_kafka.admin import AdminClient
from copier import cluster

PATTERN = re.compile(os.environ["LINKFLAP_TOPIC_PATTERN"])
WITHIN = 60


def there(admin):
    return [name for name in admin.list_topics(timeout=30).topics if PATTERN.fullmatch(name)]


def main():
    admin, deadline = AdminClient(cluster("DESTINATION")), time.monotonic() + WITHIN
    if topics := there(admin):
        for deleted in admin.delete_topics(topics, operation_timeout=WITHIN).values():
            deleted.result()
    while left := there(admin):
        if time.monotonic() > deadline:
            sys.exit(f"still there after {WITHIN} s: {', '.join(left)}")
        time.sleep(0.1)


if __name__ == "__main__":
    main()
