# The base images, by the digests of their indexes of all platforms: a tag alone may name another image tomorrow.
ARG BUILD_IMAGE=golang:1.26.8@sha256:3c3e25a4da13fd0478eed2df1eb35a0e667094a7124d3993a6a1d30f71c17e79
ARG RUNTIME_IMAGE=gcr.io/distroless/static:nonroot@sha256:e2e927ec666bae08560abb3c55d0659eceabb657f56b6782ab500a9fc7f555e3

# The build runs on the builder's own platform and cross-compiles for the target.
FROM --platform=$BUILDPLATFORM ${BUILD_IMAGE} AS build
ARG TARGETOS
ARG TARGETARCH
# What the façade says about itself; the repository is not there to ask.
ARG VERSION

WORKDIR /src

# Modules change less often than code: a layer of their own keeps them cached.
COPY go.mod go.sum ./
RUN go mod download

COPY . .
# The flags of the Makefile, so that both share what is compiled where they share a cache.
RUN CGO_ENABLED=0 GOOS=${TARGETOS} GOARCH=${TARGETARCH} \
    go build -trimpath -gcflags=all=-dwarf=false -ldflags="-s -w -X main.linkedVersion=${VERSION}" \
    -o /out/ ./cmd/lock-operator ./cmd/kubectl-lock

# What a container takes the plugin from; see docs/cli-run.md.
FROM ${RUNTIME_IMAGE} AS kubectl-lock
ARG VERSION REVISION CREATED
LABEL org.opencontainers.image.title="kubectl-lock" \
      org.opencontainers.image.source="https://forrst.dev/lock-operator" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.created="${CREATED}"
COPY --from=build /out/kubectl-lock /kubectl-lock
USER 65532:65532
ENTRYPOINT ["/kubectl-lock"]

# The last stage is what a build makes that names none.
FROM ${RUNTIME_IMAGE} AS lock-operator
ARG VERSION REVISION CREATED
LABEL org.opencontainers.image.title="lock-operator" \
      org.opencontainers.image.source="https://forrst.dev/lock-operator" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.created="${CREATED}"
COPY --from=build /out/lock-operator /lock-operator
# By number, so that runAsNonRoot can be checked without reading /etc/passwd.
USER 65532:65532
ENTRYPOINT ["/lock-operator"]
