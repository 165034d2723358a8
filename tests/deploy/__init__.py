"""What a lab deploys: the containers' files, and the processes they start."""
