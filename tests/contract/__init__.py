"""What any home of jobs and results has to keep to."""
