# The build runs on the builder's own platform and cross-compiles for the target.
FROM --platform=$BUILDPLATFORM golang:1.26 AS build
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

FROM gcr.io/distroless/static:nonroot
COPY --from=build /out/lock-operator /lock-operator
# By number, so that runAsNonRoot can be checked without reading /etc/passwd.
USER 65532:65532
ENTRYPOINT ["/lock-operator"]
