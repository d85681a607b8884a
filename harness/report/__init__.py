"""What people see of a run: live progress, the result table, the HTML report, JUnit."""
