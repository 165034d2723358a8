"""Container images and the services of docker-compose.yml from them; `python -m tests.images` builds and checks both."""
