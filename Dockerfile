# The images of one tree. Each runs as a non-root user and with a read-only root file system.
#   docker build --target operator -t tidegate-operator .
#   docker build --target spark    -t tidegate-spark .
#   docker build --target agent    -t tidegate-agent .
# Base images are named by digest, of an index of all platforms. Newer ones: docs/how-to/release.md.
ARG PYTHON_IMAGE=docker.io/library/python:3.12-slim-bookworm@sha256:782412e85d0f0984994c290652577d4018aff08145c85b262bb63dc0c7522254
ARG DEBIAN_IMAGE=docker.io/library/debian:bookworm-slim@sha256:88200866dfff7ea7f5cbcb6ec7c8a701889efe6fe859fe64d6990e4b07ea4171

# --- the operator -----------------------------------------------------------------------------------------------------
FROM ${PYTHON_IMAGE} AS operator-environment
COPY dev/python/uv.txt /tmp/uv.txt
RUN python -m pip install --quiet --no-cache-dir --disable-pip-version-check --root-user-action=ignore \
        --require-hashes -r /tmp/uv.txt \
    && python -m venv --without-pip /opt/tidegate/venv
WORKDIR /src
COPY pyproject.toml requirements.lock dev/python/build.txt ./
# The lock constrains versions and hashes; of what it lists only the operator's own dependencies are installed. The
# Kubernetes client has a second, asynchronous half of 30 MB that nothing here imports.
RUN uv pip install --quiet --no-cache --python /opt/tidegate/venv/bin/python --constraints requirements.lock -r pyproject.toml \
    && rm -rf /opt/tidegate/venv/lib/python3.*/site-packages/kubernetes/aio \
    && /opt/tidegate/venv/bin/python -m compileall -q /opt/tidegate/venv/lib \
    && for packages in /opt/tidegate/venv/lib/python3.*/site-packages; do echo /opt/tidegate/app > $packages/tidegate.pth; done

# Apart from its dependencies, so that a change of the code changes a small layer.
FROM operator-environment AS operator-application
COPY README.md ./
COPY operator operator
RUN uv pip install --quiet --no-cache --no-deps --build-constraints build.txt --require-build-hashes \
        --python /opt/tidegate/venv/bin/python --target /opt/tidegate/app . \
    && /opt/tidegate/venv/bin/python -m compileall -q /opt/tidegate/app

FROM ${PYTHON_IMAGE} AS operator
RUN groupadd --system --gid 10001 tidegate \
    && useradd --system --uid 10001 --gid 10001 --no-create-home --shell /usr/sbin/nologin tidegate
COPY --from=operator-environment /opt/tidegate/venv /opt/tidegate/venv
COPY LICENSE /opt/tidegate/LICENSE
COPY spark_templates /opt/tidegate/spark
COPY --from=operator-application /opt/tidegate/app /opt/tidegate/app
# Dozens of threads, each with a heap of its own, would keep what they no longer use: a fifth of the operator's memory.
ENV PATH=/opt/tidegate/app/bin:/opt/tidegate/venv/bin:$PATH \
    MALLOC_ARENA_MAX=2 \
    PYTHONUNBUFFERED=1 \
    TIDEGATE_HEALTH_ADDRESS=[::]:8080 \
    TIDEGATE_METRICS_ADDRESS=127.0.0.1:8081
USER 10001:10001
EXPOSE 8080
ENTRYPOINT ["tidegate-operator"]
ARG VERSION=0.1.0
ARG REVISION=unknown
ARG SOURCE=unknown
LABEL org.opencontainers.image.title="Tidegate operator" \
    org.opencontainers.image.description="Pauses partitions and resets offsets of live Kafka consumer groups" \
    org.opencontainers.image.licenses="Apache-2.0" \
    org.opencontainers.image.version="${VERSION}" \
    org.opencontainers.image.revision="${REVISION}" \
    org.opencontainers.image.source="${SOURCE}"

# --- the Spark job ----------------------------------------------------------------------------------------------------
FROM ${DEBIAN_IMAGE} AS spark-base
RUN apt-get update -qq \
    && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
        ca-certificates openjdk-17-jre-headless procps python3 tini \
    && rm -rf /var/lib/apt/lists/* /var/cache/apt/*.bin /var/cache/apt/archives/*.deb

# Spark's connector to Kafka, which pip's pyspark lacks and Kubernetes' pods have nowhere to download to.
FROM spark-base AS spark-connector
RUN apt-get update -qq \
    && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends maven
COPY dev/spark/pom.xml dev/spark/jars.sha256 /src/
# The jars that are listed, and no others.
RUN mvn -q -B -ntp -C -f /src/pom.xml -DincludeScope=runtime \
        org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies -DoutputDirectory=/jars \
    && cd /jars && sha256sum --quiet --strict --check /src/jars.sha256 \
    && [ "$(ls)" = "$(cut -c 67- /src/jars.sha256)" ]

FROM spark-base AS spark-environment
COPY dev/python/uv.txt /tmp/uv.txt
RUN apt-get update -qq \
    && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends python3-pip python3-venv \
    && python3 -m pip install --quiet --no-cache-dir --break-system-packages --root-user-action=ignore \
        --require-hashes -r /tmp/uv.txt \
    && python3 -m venv --without-pip /opt/tidegate/venv
WORKDIR /src
COPY pyproject.toml requirements.lock dev/python/build.txt dev/spark/left-out-jars ./
# What a batch job has no use for: tests, headers, examples, and jars that are listed with why.
RUN uv pip install --quiet --no-cache --python /opt/tidegate/venv/bin/python --constraints requirements.lock \
        --extra spark -r pyproject.toml \
    && cd /opt/tidegate/venv/lib/python3.*/site-packages \
    && rm -rf kubernetes/aio pandas/tests pyarrow/tests pyarrow/include pyspark/examples \
    && (cd pyspark/jars && grep -v '^#' /src/left-out-jars | xargs rm -r) \
    && find numpy -type d -name tests -prune -exec rm -rf {} + \
    && /opt/tidegate/venv/bin/python -m compileall -q /opt/tidegate/venv/lib \
    && echo /opt/tidegate/app > tidegate.pth
COPY --from=spark-connector /jars /opt/spark/connector
RUN mv /opt/spark/connector/*.jar /opt/tidegate/venv/lib/python3.*/site-packages/pyspark/jars/

FROM spark-environment AS spark-application
COPY README.md ./
COPY operator operator
RUN uv pip install --quiet --no-cache --no-deps --build-constraints build.txt --require-build-hashes \
        --python /opt/tidegate/venv/bin/python --target /opt/tidegate/app . \
    && /opt/tidegate/venv/bin/python -m compileall -q /opt/tidegate/app

FROM spark-base AS spark
# pip's pyspark is a whole Spark but for the entrypoint that Spark on Kubernetes calls.
RUN groupadd --system --gid 185 spark \
    && useradd --system --uid 185 --gid 185 --home-dir /opt/spark/work-dir --no-create-home --shell /usr/sbin/nologin spark \
    && mkdir -p /opt/spark/work-dir \
    && chown 185:185 /opt/spark/work-dir \
    && ln -s "/opt/tidegate/venv/lib/$(python3 -c 'import sys; print("python%d.%d" % sys.version_info[:2])')/site-packages/pyspark" \
        /opt/spark/home
COPY --from=spark-environment /opt/tidegate/venv /opt/tidegate/venv
COPY LICENSE /opt/tidegate/LICENSE
COPY spark_templates /opt/tidegate/spark
COPY --from=spark-application /opt/tidegate/app /opt/tidegate/app
# For the image's bill of materials: what Syft passes over.
COPY dev/spark/jars-without-manifest.cdx.json /opt/tidegate/sbom/
ENV SPARK_HOME=/opt/spark/home \
    PATH=/opt/tidegate/venv/bin:/opt/spark/home/bin:$PATH \
    PYSPARK_PYTHON=/opt/tidegate/venv/bin/python \
    PYSPARK_DRIVER_PYTHON=/opt/tidegate/venv/bin/python \
    PYTHONUNBUFFERED=1
WORKDIR /opt/spark/work-dir
USER 185:185
ENTRYPOINT ["/opt/tidegate/spark/entrypoint.sh"]
ARG VERSION=0.1.0
ARG REVISION=unknown
ARG SOURCE=unknown
LABEL org.opencontainers.image.title="Tidegate Spark job" \
    org.opencontainers.image.description="PySpark with the Kafka connector and the jobs that find offsets for Tidegate" \
    org.opencontainers.image.licenses="Apache-2.0" \
    org.opencontainers.image.version="${VERSION}" \
    org.opencontainers.image.revision="${REVISION}" \
    org.opencontainers.image.source="${SOURCE}"

# --- the agents, for an init container that copies them into a consumer's pod -----------------------------------------
FROM ${DEBIAN_IMAGE} AS agent-tools
RUN apt-get update -qq \
    && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends busybox-static
# What says to a bill of materials, and to scanners, which package of which Debian the program is of.
RUN mkdir -p /described/etc /described/var/lib/dpkg/status.d \
    && cp -L /etc/os-release /described/etc/os-release \
    && dpkg-query --status busybox-static > /described/var/lib/dpkg/status.d/busybox-static

FROM ${PYTHON_IMAGE} AS agent-environment
COPY dev/python/uv.txt /tmp/uv.txt
RUN python -m pip install --quiet --no-cache-dir --disable-pip-version-check --root-user-action=ignore \
        --require-hashes -r /tmp/uv.txt
WORKDIR /src
COPY pyproject.toml requirements.lock ./
# For applications that lack them. One folder serves every Python: the compiled modules carry the version in their name.
# On musl there is no confluent-kafka to be had, and wrapt does without its compiled half.
RUN set -eu; fallback=/agent/python/fallback; machine=$(uname -m); mkdir -p $fallback; \
    for version in 3.10 3.11 3.12 3.13 3.14; do \
        echo 'typing-extensions\nconfluent-kafka' | uv pip install --quiet --no-cache --no-deps --target /wheels/$version \
            --python-version $version --python-platform $machine-manylinux_2_28 --only-binary :all: \
            --constraints requirements.lock -r -; \
        cp -R /wheels/$version/. $fallback/; \
    done; \
    echo wrapt | uv pip install --quiet --no-cache --no-deps --target /wheels/any --constraints requirements.lock -r -; \
    cp -R /wheels/any/. $fallback/; \
    cd $fallback; rm -rf wrapt/_wrappers* bin .lock confluent_kafka/schema_registry confluent_kafka/avro
COPY agents/python /agent/python
RUN find /agent -name __pycache__ -prune -exec rm -rf {} + \
    && cd /agent/python && rm -rf pyproject.toml README.md tidegate_agent.pth

# Without its tests, which `make test` runs. What goes into the jar is what is listed, and nothing else.
FROM spark-base AS agent-java
RUN apt-get update -qq \
    && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends maven openjdk-17-jdk-headless
COPY agents/java /src
RUN mvn -q -B -ntp -C -f /src/pom.xml -Dmaven.test.skip -Dspotless.check.skip package \
        org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies -DincludeScope=runtime \
        -DexcludeGroupIds=io.tidegate.agent -DoutputDirectory=/jars \
    && cd /jars && sha256sum --quiet --strict --check /src/jars.sha256 \
    && [ "$(ls)" = "$(cut -c 67- /src/jars.sha256)" ] \
    && install -D -m 0644 /src/agent/target/tidegate-agent.jar /agent/java/tidegate-agent.jar

FROM scratch AS agent
COPY --from=agent-tools /bin/busybox /bin/busybox
COPY --from=agent-tools /described /
COPY --from=agent-environment /agent /opt/tidegate/agent
COPY --from=agent-java /agent /opt/tidegate/agent
# For the image's bill of materials: what was moved into packages of the agent's own, where Syft does not find it.
COPY agents/java/relocated.cdx.json /opt/tidegate/sbom/
COPY agents/install /opt/tidegate/agent/install
COPY LICENSE /opt/tidegate/LICENSE
USER 10001:10001
ENTRYPOINT ["/opt/tidegate/agent/install"]
ARG VERSION=0.1.0
ARG REVISION=unknown
ARG SOURCE=unknown
LABEL org.opencontainers.image.title="Tidegate agent" \
    org.opencontainers.image.description="Copies the agents for Python and Java consumers into the folder that it is told" \
    org.opencontainers.image.licenses="Apache-2.0" \
    org.opencontainers.image.version="${VERSION}" \
    org.opencontainers.image.revision="${REVISION}" \
    org.opencontainers.image.source="${SOURCE}"
