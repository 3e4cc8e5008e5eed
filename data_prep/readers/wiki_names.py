"""Names of namespaces and templates, in English and the languages of the larger Wikipedias.

The English names work on every wiki; the others are those of a wiki's language. Where a name is unknown, its pages or
links stay: a caption too many, never prose lost.
"""


def _names(text: str) -> frozenset[str]:
    return frozenset(name.strip() for name in text.split(","))


# All are lower case, with spaces for underscores.
FILE_NAMES = _names(
    """file, image, media, datei, bild, fichier, archivo, imagen, immagine, bestand, afbeelding, plik, grafika,
    ficheiro, arquivo, imagem, файл, изображение, зображення, фајл, датотека, слика, ファイル, 画像, 文件,
    檔案, 图像, 圖像, fil, billede, bilde, tiedosto, kuva, soubor, obrázok, súbor, fájl, kép, dosya, resim,
    berkas, gambar, fail, imej, ملف, صورة, קובץ, תמונה, پرونده, تصویر, 파일, 그림, αρχείο, εικόνα, fitxer,
    imatge, fișier, imagine, slika, datoteka, dosiero, bildo, fitxategi, irudi, चित्र, ไฟล์, ภาพ, tập tin,
    hình"""
)
CATEGORY_NAMES = _names(
    """category, kategorie, catégorie, categoría, categoria, categorie, kategoria, kategória, kategori, категория,
    категорія, категорија, カテゴリ, luokka, kategorija, kategorio, kategoriya, تصنيف, קטגוריה, رده, 분류, κατηγορία,
    श्रेणी, หมวดหมู่, 分类, 分類, thể loại"""
)
# For exports before schema 0.6, which do not state the namespace of a page.
OTHER_NAMESPACE_NAMES = _names(
    """talk, user, user talk, wikipedia, wikipedia talk, wp, project, project talk, file talk, image talk, mediawiki,
    mediawiki talk, template, template talk, help, help talk, category talk, portal, portal talk, book, book talk,
    draft, draft talk, module, module talk, gadget, topic, special, timedtext, education program,
    education program talk,
    diskussion, benutzer, vorlage, hilfe, discussion, utilisateur, modèle, aide, discusión, usuario, plantilla, ayuda,
    discussione, utente, aiuto, overleg, gebruiker, sjabloon, dyskusja, wikipedysta, szablon, pomoc, discussão,
    predefinição, ajuda, обсуждение, участник, википедия, шаблон, справка, ノート, 利用者, テンプレート, användare,
    mall"""
)
DISAMBIGUATION_TEMPLATES = _names(
    """dab, disamb, disambig, disambiguation, hndis, hndis-cleanup, hndab, geodis, geodab, schooldis, schooldab,
    hospitaldis, roaddis, mathdab, mathdis, numberdis, letterdis, letter-numbercombdisambig, letter-numbercombdab,
    airportdis, callsigndis, biodab, stationdis, templedis, begriffsklärung, homonymie, desambiguación, desambiguação,
    desambig, disambigua, ujednoznacznienie, неоднозначность, неоднозначність, 曖昧さ回避, aimai, förgrening,
    täsmennyssivu, rozcestník, egyértelmű, anlam ayrımı, توضيح, ابهام‌زدایی, פירושונים, 동음이의, 消歧义, 消歧義,
    desambiguació, dezambiguizare, flertydig"""
)
