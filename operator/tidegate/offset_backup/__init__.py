"""``OffsetBackup``: when a backup of groups' offsets is due, how it is made, and how a group is restored from one."""
