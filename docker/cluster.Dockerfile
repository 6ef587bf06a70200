# The server's image with what a cluster needs on top: Ray, and clients of PostgreSQL and of buckets.
#
#   docker build --file docker/Dockerfile --tag sharp-serve:cpu .
#   docker build --file docker/cluster.Dockerfile --tag sharp-serve:cluster .
ARG SERVER_IMAGE=sharp-serve:cpu
FROM ${SERVER_IMAGE}

USER 0:0
# Versions as in pyproject.toml's extra `cluster`.
RUN /opt/sharp/bin/pip install --no-cache-dir "httpx==0.28.1" "obstore==0.12.1" "psycopg[binary,pool]==3.3.9" "ray==2.60.0"
USER 10001:10001
