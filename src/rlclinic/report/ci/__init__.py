"""A Diagnosis in the forms that continuous integration reads: annotations of GitHub Actions, JUnit XML, SARIF 2.1.0."""
