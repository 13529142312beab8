"""gRPC's options, the same on every link: no frame longer than can be valid, and a peer that hangs is noticed."""

from __future__ import annotations

_BOTH_ENDS: list[tuple[str, int]] = [
    ("grpc.max_send_message_length", -1),
    ("grpc.keepalive_time_ms", 15_000),
    ("grpc.keepalive_timeout_ms", 20_000),  # a site with a thousand streams on a busy machine may be slow
    ("grpc.http2.ping_timeout_ms", 20_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.bdp_probe", 0),  # a probe is one more packet for every frame, each way
    ("grpc.http2.lookahead_bytes", 1 << 20),  # so the window is stated: half a second at 16 Mbit/s
]


def server_options(frame_bytes: int) -> list[tuple[str, int]]:
    """For the end that listens; only one process may listen on a port."""
    return [
        *_BOTH_ENDS,
        ("grpc.max_receive_message_length", frame_bytes),
        ("grpc.so_reuseport", 0),
        ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
        ("grpc.max_connection_idle_ms", 60_000),  # without a call
        ("grpc.server_handshake_timeout_ms", 10_000),
    ]


def channel_options(frame_bytes: int, tls_name: str) -> list[tuple[str, int | str]]:
    """For the end that calls, quick to try again; `tls_name` is the name in the certificate that it pins."""
    return [
        *_BOTH_ENDS,
        ("grpc.max_receive_message_length", frame_bytes),
        ("grpc.ssl_target_name_override", tls_name),
        ("grpc.http2.max_pings_without_data", 0),
        ("grpc.initial_reconnect_backoff_ms", 200),
        ("grpc.min_reconnect_backoff_ms", 20_000),  # the time that an attempt to connect may take, too
        ("grpc.max_reconnect_backoff_ms", 3_000),
        ("grpc.enable_retries", 0),
    ]
