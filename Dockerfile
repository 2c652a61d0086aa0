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
RUN CGO_ENABLED=0 GOOS=${TARGETOS} GOARCH=${TARGETARCH} \
    go build -trimpath -ldflags="-s -w -X main.linkedVersion=${VERSION}" -o /out/lock-operator ./cmd/lock-operator

FROM ${RUNTIME_IMAGE}
COPY --from=build /out/lock-operator /lock-operator
# By number, so that runAsNonRoot can be checked without reading /etc/passwd.
USER 65532:65532
ENTRYPOINT ["/lock-operator"]
