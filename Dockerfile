# The nearmt server. See docs/container.md for how to run it; `make docker-steps` runs the same steps without Docker.
#
#   docker build -t nearmt .

FROM python:3.11-slim AS build
# Set TORCH_INDEX to PyTorch's index of CPU builds to leave out the CUDA libraries.
ARG TORCH_INDEX=
ARG EXTRAS=server
WORKDIR /build
# Dependencies change less often than the code, but both come with the wheel: one layer.
COPY pyproject.toml README.md LICENSE MANIFEST.in constraints.txt ./
COPY docker/wheel.sh docker/install.sh docker/
COPY src/ src/
RUN bash docker/wheel.sh . /wheels
RUN TORCH_INDEX="$TORCH_INDEX" bash docker/install.sh /opt/nearmt /wheels "nearmt[$EXTRAS]"

FROM python:3.11-slim
RUN useradd --system --uid 10001 --home-dir /stores --shell /usr/sbin/nologin nearmt \
    && install -d -o nearmt -g nearmt /stores /models
COPY --from=build /opt/nearmt /opt/nearmt
COPY docker/entrypoint.sh docker/healthcheck.py /usr/local/lib/nearmt/
ENV PATH=/opt/nearmt/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    HF_HOME=/models \
    NEARMT_STORES=/stores \
    NEARMT_SERVER_HOST=0.0.0.0 \
    NEARMT_SERVER_PORT=8080
USER nearmt
WORKDIR /stores
VOLUME ["/stores", "/models"]
EXPOSE 8080
STOPSIGNAL SIGTERM
# Answers while stores are still being loaded; /v1/ready says when all of them are.
HEALTHCHECK --interval=30s --timeout=10s --start-period=60s --retries=3 \
    CMD ["python", "/usr/local/lib/nearmt/healthcheck.py"]
ENTRYPOINT ["bash", "/usr/local/lib/nearmt/entrypoint.sh"]
