"""Reports of a run for people and CI: live progress, the result table, the HTML report, JUnit."""
