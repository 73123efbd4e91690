"""Prints how many tests a JUnit report holds and how many of them really ran."""

import sys
import xml.etree.ElementTree as ET

suites = list(ET.parse(sys.argv[1]).getroot().iter("testsuite"))
collected = sum(int(s.get("tests", 0)) for s in suites)
print(collected, collected - sum(int(s.get("skipped", 0)) for s in suites))
