# Two images of one tree:
#   docker build --target operator -t tidegate-operator .
#   docker build --target spark    -t tidegate-spark .
ARG PYTHON_IMAGE=python:3.12-slim
ARG SPARK_BASE_IMAGE=debian:bookworm-slim

# --- the operator -----------------------------------------------------------------------------------------------------
FROM ${PYTHON_IMAGE} AS operator-environment
ARG UV_VERSION=0.13.8
RUN python -m pip install --quiet --no-cache-dir --disable-pip-version-check --root-user-action=ignore uv==${UV_VERSION} \
    && python -m venv --without-pip /opt/tidegate/venv
WORKDIR /src
COPY pyproject.toml requirements.lock README.md ./
COPY operator operator
# The lock constrains versions and hashes; of what it lists only the operator's own dependencies are installed.
RUN uv pip install --quiet --no-cache --python /opt/tidegate/venv/bin/python --constraints requirements.lock . \
    && /opt/tidegate/venv/bin/python -m compileall -q /opt/tidegate/venv/lib

FROM ${PYTHON_IMAGE} AS operator
RUN groupadd --system --gid 10001 tidegate \
    && useradd --system --uid 10001 --gid 10001 --no-create-home --shell /usr/sbin/nologin tidegate
COPY --from=operator-environment /opt/tidegate/venv /opt/tidegate/venv
COPY spark_templates /opt/tidegate/spark
COPY LICENSE /opt/tidegate/LICENSE
ENV PATH=/opt/tidegate/venv/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    TIDEGATE_HEALTH_ADDRESS=0.0.0.0:8080
USER 10001:10001
EXPOSE 8080
ENTRYPOINT ["tidegate-operator"]

# --- the Spark job ----------------------------------------------------------------------------------------------------
FROM ${SPARK_BASE_IMAGE} AS spark-base
RUN apt-get update -qq \
    && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
        ca-certificates openjdk-17-jre-headless procps python3 tini \
    && rm -rf /var/lib/apt/lists/* /var/cache/apt/archives/*.deb

FROM spark-base AS spark-environment
ARG UV_VERSION=0.13.8
RUN apt-get update -qq \
    && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends python3-pip python3-venv \
    && python3 -m pip install --quiet --no-cache-dir --break-system-packages --root-user-action=ignore uv==${UV_VERSION} \
    && python3 -m venv --without-pip /opt/tidegate/venv
WORKDIR /src
COPY pyproject.toml requirements.lock README.md ./
COPY operator operator
RUN uv pip install --quiet --no-cache --python /opt/tidegate/venv/bin/python --constraints requirements.lock '.[spark]' \
    && /opt/tidegate/venv/bin/python -m compileall -q /opt/tidegate/venv/lib

FROM spark-base AS spark
RUN groupadd --system --gid 185 spark \
    && useradd --system --uid 185 --gid 185 --home-dir /opt/spark/work-dir --no-create-home --shell /usr/sbin/nologin spark \
    && mkdir -p /opt/spark/work-dir \
    && chown 185:185 /opt/spark/work-dir
COPY --from=spark-environment /opt/tidegate/venv /opt/tidegate/venv
COPY spark_templates /opt/tidegate/spark
COPY LICENSE /opt/tidegate/LICENSE
# pip's pyspark is a whole Spark but for the entrypoint that Spark on Kubernetes calls.
RUN ln -s /opt/tidegate/venv/lib/python3.*/site-packages/pyspark /opt/spark/home \
    && chmod 0755 /opt/tidegate/spark/entrypoint.sh
ENV SPARK_HOME=/opt/spark/home \
    PATH=/opt/tidegate/venv/bin:/opt/spark/home/bin:$PATH \
    PYSPARK_PYTHON=/opt/tidegate/venv/bin/python \
    PYSPARK_DRIVER_PYTHON=/opt/tidegate/venv/bin/python \
    PYTHONUNBUFFERED=1
WORKDIR /opt/spark/work-dir
USER 185:185
ENTRYPOINT ["/opt/tidegate/spark/entrypoint.sh"]
