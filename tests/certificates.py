# SPDX-License-Identifier: BSD-3-Clause
"""Certificates for tests, made by the command `openssl`."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

PREFIX = "GLOO_DEVICE_TRANSPORT_TCP_TLS_"
NEW_KEY = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]


def openssl_is_missing() -> bool:
    return shutil.which("openssl") is None


def openssl(folder: Path, *arguments: str) -> None:
    subprocess.run(
        ["openssl", *arguments], cwd=folder, check=True, capture_output=True, timeout=60
    )


@dataclass
class Identity:
    """A private key, its certificate, and the authority that signed it."""

    key: Path
    certificate: Path
    authority: Path

    def environment(self, **changes: Path | str) -> dict[str, str]:
        files = {
            "PKEY": self.key,
            "CERT": self.certificate,
            "CA_FILE": self.authority,
            **changes,
        }
        return {
            "DISTLITE_TLS": "cert",
            **{PREFIX + name: str(path) for name, path in files.items()},
        }


class Authority:
    """Signs certificates; makes its own files in `folder`."""

    def __init__(self, folder: Path, name: str = "job") -> None:
        self.folder = folder
        self.name = name
        self.certificate = folder / f"{name}-ca.pem"
        subject = ["-subj", f"/CN={name} authority", "-days", "2"]
        # Python's ssl module has looked for it since 3.13.
        usage = ["-addext", "keyUsage=critical,keyCertSign,cRLSign"]
        files = ["-keyout", f"{name}-ca.key", "-out", self.certificate.name]
        openssl(folder, "req", "-x509", *NEW_KEY, *subject, *usage, *files)

    def sign(self, name: str, days: int = 1) -> Identity:
        subject = ["-subj", f"/CN={name}"]
        files = ["-keyout", f"{name}.key", "-out", f"{name}.csr"]
        openssl(self.folder, "req", "-new", *NEW_KEY, *subject, *files)
        signer = ["-CA", self.certificate.name, "-CAkey", f"{self.name}-ca.key"]
        files = ["-in", f"{name}.csr", "-out", f"{name}.pem"]
        number = ["-CAcreateserial", "-days", str(days)]
        openssl(self.folder, "x509", "-req", *signer, *number, *files)
        return Identity(
            self.folder / f"{name}.key", self.folder / f"{name}.pem", self.certificate
        )
