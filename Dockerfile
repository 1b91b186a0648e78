# The three programs in an image that holds nothing else but the certificates of public authorities:
#
#   docker build -t registry.example.com/spot:0.1.0 .
#
# for the architecture of the machine that builds, amd64 or arm64: `--platform` builds for another one under emulation,
# which takes hours. The release workflow builds each on a machine of its own, and joins the two under one name. The SDK
# of EC2 takes 8 GiB of memory.
FROM rust:1.95.0-slim-bookworm AS build
ARG TARGETARCH
# The image's own: the workspace's file names components besides, which a build does not need.
ENV RUSTUP_TOOLCHAIN=1.95.0
# A static program needs no C library beside it. It still asks the name servers of /etc/resolv.conf: since glibc 2.34
# that takes no plug-in.
ENV RUSTFLAGS="-C target-feature=+crt-static"
WORKDIR /src
COPY . .
# With `--target`, though it is the machine's own: build scripts and procedural macros can't be static.
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    case "$TARGETARCH" in \
      amd64) target=x86_64-unknown-linux-gnu ;; \
      arm64) target=aarch64-unknown-linux-gnu ;; \
      *) echo "built for amd64 and arm64 only, and not for '$TARGETARCH'; without BuildKit, add --build-arg TARGETARCH=amd64" >&2; exit 1 ;; \
    esac && \
    cargo build --locked --release --target "$target" -p spot-bin --features aws --bin spot-migrator --bin spot-fleet && \
    cargo build --locked --profile agent --target "$target" -p spot-bin --features agent --bin spot-agent && \
    mkdir /programs && \
    cp "target/$target/release/spot-migrator" "target/$target/release/spot-fleet" "target/$target/agent/spot-agent" /programs/ && \
    for program in /programs/*; do ldd "$program" 2>&1 | grep -q 'statically linked' || exit 1; "$program" --version; done

FROM scratch
LABEL org.opencontainers.image.title="spot" \
      org.opencontainers.image.description="Moves Kubernetes workloads from on-demand to spot nodes" \
      org.opencontainers.image.source="https://github.com/spot-migrator/spot" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --from=build /src/LICENSE /LICENSE
COPY --from=build /programs/ /usr/local/bin/
ENV PATH=/usr/local/bin
# Nobody's: a number, for Kubernetes can't tell of a name that it is not root's.
USER 65532:65532
ENTRYPOINT ["spot-migrator"]
