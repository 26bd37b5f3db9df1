FROM tools:1 AS base
ARG VERSION=none
ARG COMMIT
RUN mkdir -p /srv && echo "version $VERSION of $COMMIT" > /srv/index.html

FROM base AS release
ENV STAGE=release
COPY motto /srv/motto
CMD ["serve"]

FROM base AS debug
CMD ["false"]
