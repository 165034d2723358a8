"""What tests share: servers, clusters, small models, hostile inputs."""
