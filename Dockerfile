# graphmem as an image: Python, the packages it needs, and nothing to build with.
#
#   docker build -t graphmem .                        command line and service; memories live in the volume /data
#   docker build -t graphmem-tests --target tests .   the tests, with all that development needs
#
# Pinned: the base by tag and digest (the digest is the one that docker-library/repo-info records for the tag, for every
# architecture), packages by .ci/constraints.txt, versions and hashes.

FROM python:3.13.14-slim-trixie@sha256:9662417aace5ae7b8e2609cce472b72a8958e134ba372808abe9cc1a0c0125e6 AS base
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore
RUN useradd --uid 10001 --user-group --create-home graphmem


# All that the constraints name, checked against the hashes that stand there.
FROM base AS wheels
COPY .ci/constraints.txt /src/.ci/constraints.txt
RUN pip download --require-hashes --no-deps --only-binary :all: -d /wheels -r /src/.ci/constraints.txt


# graphmem from those wheels and from nowhere else. The constraints name what development needs, too; resolving the
# project among the wheels takes what it depends on and leaves the rest behind.
FROM wheels AS build
COPY pyproject.toml README.md LICENSE /src/
COPY cypher /src/cypher
COPY graphmem /src/graphmem
RUN python -m venv --without-pip /opt/graphmem \
    && pip --python /opt/graphmem install --no-index --find-links /wheels '/src[celery,redis,serve,servers,yaml]'


FROM wheels AS tests
WORKDIR /src
RUN pip install --require-hashes --no-index --find-links /wheels -r .ci/constraints.txt
COPY --chown=graphmem:graphmem . /src/
RUN pip install --no-index --no-deps --no-build-isolation -e . && chown graphmem:graphmem /src
USER 10001:10001
ENTRYPOINT ["pytest"]
CMD ["-m", "server"]


FROM base AS graphmem
LABEL org.opencontainers.image.title="graphmem" org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /opt/graphmem /opt/graphmem
RUN install --directory --owner graphmem --group graphmem --mode 0700 /data
# Two arenas: otherwise the C library keeps one for each thread, with the memory that was freed in it.
ENV PATH=/opt/graphmem/bin:$PATH GRAPHMEM_HOME=/data MALLOC_ARENA_MAX=2
VOLUME /data
EXPOSE 8700
USER 10001:10001
ENTRYPOINT ["graphmem"]
CMD ["--help"]
