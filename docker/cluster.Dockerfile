# The server's image with what a cluster needs on top: Ray, and clients of PostgreSQL and of buckets.
#
#   docker build --file docker/Dockerfile --tag sharp-serve:cpu .
#   docker build --file docker/cluster.Dockerfile --tag sharp-serve:cluster .
ARG SERVER_IMAGE=sharp-serve:cpu
FROM ${SERVER_IMAGE}

USER 0:0
# What pyproject.toml's extra `cluster` adds, file by file as it is locked.
COPY docker/cluster.lock /
RUN /opt/sharp/bin/pip install --no-cache-dir --no-deps --require-hashes -r /cluster.lock \
 && /opt/sharp/bin/pip check
USER 10001:10001
