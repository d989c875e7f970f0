"""Small files beside the data of backups, through Hadoop's ``FileSystem``: local folders, claims, S3."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from tidegate.jobs.storage import Storage, hadoop_options
from tidegate.spark.expression import spoken

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_NOT_FOUND: Final = "java.io.FileNotFoundException"
_LONGEST: Final = 500


class StorageFailure(Exception):
    """The place can't be read or written; the message says which and why. Hadoop has tried again by itself."""


class _Missing(StorageFailure):
    """There is nothing of that name."""


class Files:
    """Names are relative to the storage's root, with ``/`` between their parts. For the driver only.

    Every call raises ``StorageFailure``.
    """

    def __init__(self, spark: SparkSession, storage: Storage) -> None:
        self._jvm: Any = spark.sparkContext._jvm
        self._root = storage.uri
        # A copy: what one storage needs is no other job's setting.
        self._conf = self._jvm.org.apache.hadoop.conf.Configuration(spark.sparkContext._jsc.hadoopConfiguration())
        for key, value in hadoop_options(storage).items():
            self._conf.set(key, value)
        self._fs = self._call("open", "", lambda: self._path("").getFileSystem(self._conf))

    def uri(self, name: str) -> str:
        return f"{self._root}/{name}" if name else self._root

    def names(self, folder: str) -> tuple[str, ...]:
        """What lies in a folder, by name within it; nothing where there is no such folder."""
        try:
            found = self._call("list", folder, lambda: self._fs.listStatus(self._path(folder)))
        except _Missing:
            return ()
        return tuple(sorted(status.getPath().getName() for status in found))

    def read(self, name: str) -> bytes | None:
        """``None``: there is none."""
        try:
            stream = self._call("read", name, lambda: self._fs.open(self._path(name)))
        except _Missing:
            return None
        try:
            content = self._call("read", name, lambda: self._jvm.org.apache.commons.io.IOUtils.toByteArray(stream))
        finally:
            stream.close()
        return bytes(content)

    def publish(self, name: str, content: bytes) -> bool:
        """Whether it is published now, or by an earlier attempt, and not another content, which stays.

        The whole file appears at once: an object store's PUT does that; elsewhere it is renamed to its place. Where two
        do so at the same moment the later one may replace the other: neither Hadoop's local files nor S3A exclude that.
        """
        there = self.read(name)
        if there is not None:
            return there == content
        if self._root.startswith("s3a:"):
            self._write(name, content)
            return True
        folder, _, last = name.rpartition("/")
        aside = f"{folder}/.{last}.{uuid4().hex}"
        self._write(aside, content)
        if self._call("rename", name, lambda: self._fs.rename(self._path(aside), self._path(name))):
            return True
        self.remove(aside)
        there = self.read(name)
        if there is None:
            raise StorageFailure(f"can't write {self.uri(name)}: it could not be renamed to that")
        return there == content

    def size(self, name: str) -> int:
        """Bytes of all that is below."""
        return int(self._call("measure", name, lambda: self._fs.getContentSummary(self._path(name)).getLength()))

    def remove(self, name: str) -> None:
        """With all that is below. Idempotent."""
        self._call("remove", name, lambda: self._fs.delete(self._path(name), True))

    def _write(self, name: str, content: bytes) -> None:
        stream = self._call("write", name, lambda: self._fs.create(self._path(name), True))
        try:
            self._call("write", name, lambda: stream.write(bytearray(content)))
        finally:
            # Only the closing makes an object of it, and tells what went wrong.
            self._call("write", name, stream.close)

    def _path(self, name: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(self.uri(name))

    def _call(self, what: str, name: str, call: Any) -> Any:
        from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped,unused-ignore]

        try:
            return call()
        except Py4JJavaError as error:
            failure = _Missing if error.java_exception.getClass().getName() == _NOT_FOUND else StorageFailure
            hint = ""
            if "S3AFileSystem" in str(error) and "ClassNotFoundException" in str(error):
                hint = ": the job's image lacks Hadoop's connector to S3 (hadoop-aws)"
            raise failure(f"can't {what} {self.uri(name)}: {why(error)}{hint}") from error


def why(error: Any) -> str:
    """What a person needs of a failure of Hadoop or Spark: Java's exception in one line, without its trace."""
    from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped,unused-ignore]

    if not isinstance(error, Py4JJavaError):
        return spoken(error)
    text = str(error.java_exception.toString()).partition("\n")[0]
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."
